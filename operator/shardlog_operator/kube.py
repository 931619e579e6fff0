"""Calls of the Kubernetes API that are no watches: a few verbs on JSON, over kopf's credentials.

Watching is kopf's.  What is left are writes of a handful of kinds, for which a client library of
its own would be more to carry than to use.  Whatever goes wrong is translated here, once: nobody
above sees an aiohttp error or a status code.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import aiohttp
import kopf

from shardlog_operator.snapshot_spec import SNAPSHOTS
from shardlog_operator.spec import API_VERSION, OPERATIONS, SHARDS

Json = Any
TIMEOUT_S = 30.0
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class ApiFailure(Exception):  # noqa: N818 - named after what happened
    """Base of all; the message is one line for a person."""

    # The namespace is being deleted: nothing new is made in it.
    is_terminating = False


class ApiUnavailable(ApiFailure):
    """No answer, or the API server cannot serve now: it may be done, or not."""


class NotFound(ApiFailure):
    pass


class Conflict(ApiFailure):
    """Somebody else has written it meanwhile, or it exists already."""


class Forbidden(ApiFailure):
    """The operator's role does not allow it."""


class Refused(ApiFailure):
    """The API server does not accept what was sent: a mistake of ours, or an older CRD."""


_KINDS: dict[int, type[ApiFailure]] = {
    401: ApiUnavailable,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    429: ApiUnavailable,
}


def log_in() -> kopf.ConnectionInfo:
    """As a pod, else by the kubeconfig; raises `ApiUnavailable`."""
    settings = kopf.OperatorSettings()
    found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(
        settings=settings
    )
    if found is None:
        raise ApiUnavailable("neither a service account nor a kubeconfig is here")
    return found


class Kube:
    """One namespace.  The session is made again when the API server does not know us any more."""

    def __init__(self, namespace: str, connect: Callable[[], kopf.ConnectionInfo] = log_in) -> None:
        self.namespace = namespace
        self._connect = connect
        self._session: aiohttp.ClientSession | None = None
        self._url = ""
        # What the latest call came to, if nobody answered it: for people.
        self.failure: ApiUnavailable | None = None
        self.writes = 0

    # --- where things are ------------------------------------------------------------------------

    def shard(self, name: str, subresource: str = "") -> str:
        return self._named(f"/apis/{API_VERSION}", SHARDS, name, subresource)

    def operation(self, name: str, subresource: str = "") -> str:
        return self._named(f"/apis/{API_VERSION}", OPERATIONS, name, subresource)

    def snapshot(self, name: str, subresource: str = "") -> str:
        return self._named(f"/apis/{API_VERSION}", SNAPSHOTS, name, subresource)

    def job(self, name: str = "") -> str:
        return self._named("/apis/batch/v1", "jobs", name)

    def pod_template(self, name: str) -> str:
        return self._named("/api/v1", "podtemplates", name)

    def pod(self, name: str, subresource: str = "") -> str:
        return self._named("/api/v1", "pods", name, subresource)

    def listing(self, plural: str, labels: str = "") -> str:
        group = "/api/v1" if plural == "pods" else f"/apis/{API_VERSION}"
        selected = f"?labelSelector={quote(labels, safe='')}" if labels else ""
        return self._named(group, plural) + selected

    def service(self, name: str = "") -> str:
        return self._named("/api/v1", "services", name)

    def endpoint_slice(self, name: str = "") -> str:
        return self._named("/apis/discovery.k8s.io/v1", "endpointslices", name)

    def events(self) -> str:
        return self._named("/api/v1", "events")

    @staticmethod
    def machine(name: str) -> str:
        return f"/api/v1/nodes/{quote(name, safe='')}"

    def _named(self, group: str, plural: str, name: str = "", subresource: str = "") -> str:
        parts = [f"{group}/namespaces/{self.namespace}/{plural}", quote(name, safe=""), subresource]
        return "/".join(part for part in parts if part)

    # --- verbs -----------------------------------------------------------------------------------

    async def get(self, path: str) -> Json:
        return await self._call("GET", path)

    async def create(self, path: str, body: Json) -> Json:
        return await self._call("POST", path, body)

    async def replace(self, path: str, body: Json) -> Json:
        return await self._call("PUT", path, body)

    async def patch(self, path: str, body: Json, kind: str = MERGE) -> Json:
        return await self._call("PATCH", path, body, kind)

    async def delete(self, path: str, uid: str = "", propagation: str = "") -> None:
        """What is gone already is gone; `propagation` says what becomes of what it owns."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if propagation:
            body["propagationPolicy"] = propagation
        with suppress(NotFound):
            await self._call("DELETE", path, body)

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _call(
        self, verb: str, path: str, body: Json = None, kind: str = "application/json"
    ) -> Json:
        if verb != "GET":
            self.writes += 1
        data = None if body is None else json.dumps(body).encode()
        try:
            session = self._opened()
            async with session.request(
                verb, self._url + path, data=data, headers={"Content-Type": kind}
            ) as answer:
                found = await answer.json(content_type=None)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as failure:
            why = str(failure) or type(failure).__name__
            self.failure = ApiUnavailable(f"{verb} {path}: {why}")
            raise self.failure from failure
        if status == 401:
            await self.close()
        if status >= 400:
            raise self._failed(status, f"{verb} {path}", found)
        self.failure = None
        return found

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            info = self._connect()
            secure = info.server.startswith("https:")
            connector = aiohttp.TCPConnector(ssl=info.as_ssl_context() if secure else False)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=info.as_http_headers() | {"Accept": "application/json"},
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            )
            self._url = info.server.rstrip("/")
        return self._session

    def _failed(self, status: int, what: str, found: Json) -> ApiFailure:
        told = found.get("message") if isinstance(found, dict) else None
        kind = ApiUnavailable if status >= 500 else _KINDS.get(status, Refused)
        failure = kind(f"{what}: {told or status}")
        failure.is_terminating = "NamespaceTerminating" in _causes(found)
        if isinstance(failure, ApiUnavailable):
            self.failure = failure
        return failure


def _causes(found: Json) -> list[str]:
    details = (found.get("details") or {}) if isinstance(found, dict) else {}
    return [each.get("reason", "") for each in details.get("causes") or ()]


async def wait_for_kinds(kube: Kube, again_s: float, tell: Callable[[str], None]) -> None:
    """Until the API server knows what a Shard is: the CRDs may be installed after us."""
    while True:
        try:
            await kube.get(f"/apis/{API_VERSION}")
        except NotFound:
            tell(f"the API server does not know {API_VERSION}: are the CRDs installed?")
        except ApiFailure as failure:
            tell(str(failure))
        else:
            return
        await asyncio.sleep(again_s)
