"""Which etcd, and how long to wait for it.

From code `EtcdSettings`, from a person one URL:

    etcd://host-a:2379,host-b:2379/shardlog/prod/
    etcds://user:password@host-a/shardlog/?ca=ca.pem&cert=me.pem&key=me.key&name=etcd.internal

`etcds` is TLS; `ca` leaves out the system's authorities, `cert` and `key` are for mutual TLS,
`name` is what the certificate is for if that is not the host.  All keys of the store begin with the
path, which ends with a slash so that no store sees the keys of one whose path is longer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from shardlog.metadata.failures import CannotOpen

PORT = 2379
PREFIX = "/shardlog/"
PREFIX_BYTES_MAX = 256
CONNECT_TIMEOUT_MS = 2000
REQUEST_TIMEOUT_MS = 5000
KEEPALIVE_MS = 10_000
KEEPALIVE_MS_MIN = 5000
"""etcd drops a connection that asks more often than `--grpc-keepalive-min-time`, 5 s as a rule."""

_ENDPOINT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_PREFIX = re.compile(r"/(?:[!-~]*/)?")
_TLS_KEYS = ("ca", "cert", "key", "name")


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """Files are read at each new connection, so that renewed certificates are taken up."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """A read is tried at several members within `request_timeout_ms`, a write at one.

    A member that does not answer within `connect_timeout_ms` is passed over.  A connection on
    which nothing came for `keepalive_ms` is tried, and given up after half as long again.
    """

    endpoints: tuple[str, ...]
    prefix: str = PREFIX
    tls: EtcdTls | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    keepalive_ms: int = KEEPALIVE_MS

    def __post_init__(self) -> None:
        if not self.endpoints:
            self._refuse("no endpoint is given")
        object.__setattr__(self, "endpoints", tuple(map(self._endpoint, self.endpoints)))
        if not _PREFIX.fullmatch(self.prefix) or len(self.prefix) > PREFIX_BYTES_MAX:
            self._refuse(
                f"the prefix {self.prefix!r:.80} is not printable ASCII of at most"
                f" {PREFIX_BYTES_MAX} bytes that begins and ends with a slash"
            )
        if min(self.connect_timeout_ms, self.request_timeout_ms) < 1:
            self._refuse("timeouts must be positive")
        if self.keepalive_ms < KEEPALIVE_MS_MIN:
            self._refuse(f"keepalive_ms must be at least {KEEPALIVE_MS_MIN}")
        if self.tls and bool(self.tls.cert_file) != bool(self.tls.key_file):
            self._refuse("a client certificate needs both its file and its key's")
        if self.password and not self.user:
            self._refuse("a password needs a user")

    @property
    def where(self) -> str:
        """How messages name this store: without the password."""
        return f"etcd{'s' if self.tls else ''}://{','.join(self.endpoints)}{self.prefix}"

    def _endpoint(self, given: str) -> str:
        found = _ENDPOINT.fullmatch(given)
        if not found or not 0 < int(found[2] or PORT) < 65536:
            self._refuse(f"the endpoint {given!r:.80} is not HOST or HOST:PORT")
        assert found
        return f"{found[1]}:{found[2] or PORT}"

    def _refuse(self, why: str) -> None:
        raise CannotOpen("etcd", why)

    @classmethod
    def from_url(cls, url: str) -> EtcdSettings:
        parts = urlsplit(url)
        if parts.scheme not in ("etcd", "etcds") or parts.fragment:
            raise CannotOpen("etcd", "the URL is not etcd://HOST:PORT,HOST:PORT/PREFIX")
        account, _, hosts = parts.netloc.rpartition("@")
        user, _, password = account.partition(":")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(set(options) - set(_TLS_KEYS))
        if unknown:
            raise CannotOpen("etcd", f"the URL has an unknown option {unknown[0]!r:.80}")
        if options and parts.scheme == "etcd":
            raise CannotOpen("etcd", "the URL has TLS options; write etcds:// for TLS")
        tls = EtcdTls(*(options.get(key) or None for key in _TLS_KEYS))
        path = parts.path if parts.path not in ("", "/") else PREFIX
        return cls(
            endpoints=tuple(host for host in hosts.split(",") if host),
            prefix=path if path.endswith("/") else path + "/",
            tls=tls if parts.scheme == "etcds" else None,
            user=unquote(user),
            password=unquote(password),
        )
