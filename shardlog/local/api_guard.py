"""Turns away what a web page in the user's browser asks of the coordinator.

A page can send requests to this machine, whatever its own site is, and by DNS rebinding also under
a name of its own.  A browser does not let it leave out or forge `Origin`, `Sec-Fetch-Site` and
`Host`, nor send JSON to another origin without being allowed to first, which nobody is here.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from time import monotonic
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from shardlog.local.administration import AdministrationFailure

LOOPBACK_NAME = "localhost"
FETCH_SITE = "Sec-Fetch-Site"
OWN_SITES = ("same-origin", "none")
WITH_BODY = (hdrs.METH_POST, hdrs.METH_PUT, hdrs.METH_PATCH)
LOG_INTERVAL_S = 1.0
SHOWN_MAX = 80


class ForeignRequest(AdministrationFailure):
    """It comes from a page of another site, or names this server as no user of it does."""


class NotJson(AdministrationFailure):
    def __init__(self, found: str) -> None:
        super().__init__(f"Content-Type is {found!r:.{SHOWN_MAX}}: application/json is needed")


def of_browsers(log: Callable[[str], None]) -> Middleware:
    """A middleware that raises for what it turns away; one line a second is logged at most."""
    logged_s, left_out = -LOG_INTERVAL_S, 0

    def tell(request: web.Request, failure: AdministrationFailure) -> None:
        nonlocal logged_s, left_out
        if monotonic() - logged_s < LOG_INTERVAL_S:
            left_out += 1
            return
        more = f" ({left_out} more before)" if left_out else ""
        asked = f"{request.method} {request.path!r:.{SHOWN_MAX}}"
        log(f"turned away: {asked} from {request.remote}: {failure}{more}")
        logged_s, left_out = monotonic(), 0

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            _require_own(request)
            _require_json(request)
        except AdministrationFailure as failure:
            tell(request, failure)
            raise
        return await handler(request)

    return guard


def _require_own(request: web.Request) -> None:
    host = request.headers.get(hdrs.HOST, "")
    if not _is_ours(request, host):
        raise ForeignRequest(f"Host is {host!r:.{SHOWN_MAX}}: localhost or its address is needed")
    for origin in request.headers.getall(hdrs.ORIGIN, ()):
        if origin != f"{request.scheme}://{host}":
            raise ForeignRequest(f"Origin is {origin!r:.{SHOWN_MAX}}: other sites may ask nothing")
    for site in request.headers.getall(FETCH_SITE, ()):
        if site not in OWN_SITES:
            raise ForeignRequest(f"{FETCH_SITE} is {site!r:.{SHOWN_MAX}}: other sites may not ask")


def _is_ours(request: web.Request, host: str) -> bool:
    """A loopback name, or the address at which this connection was taken."""
    try:
        name = urlsplit(f"//{host}").hostname
        if name == LOOPBACK_NAME:
            return True
        address = ip_address(name or "")
    except ValueError:
        return False
    own = request.transport.get_extra_info("sockname") if request.transport else None
    return address.is_loopback or bool(own and str(address) == own[0])


def _require_json(request: web.Request) -> None:
    has_body = request.method in WITH_BODY or request.body_exists
    if has_body and request.content_type != "application/json":
        raise NotJson(request.headers.get(hdrs.CONTENT_TYPE, ""))
