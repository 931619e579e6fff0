"""One connection to one member of etcd, and the streams on it.

Every request says that it wants a member that knows a leader: a member cut off from the others
refuses it at once, and ends its streams, instead of leaving them to wait for changes that it will
never hear of.  A connection that has gone silent is found out by HTTP/2 pings.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from shardlog.metadata.etcd.calls import AUTHENTICATE, RANGE, Method
from shardlog.metadata.etcd.failures import Reauthenticate, translated
from shardlog.metadata.etcd.settings import EtcdSettings, EtcdTls
from shardlog.metadata.failures import (
    CannotOpen,
    Closed,
    MetadataFailure,
    NotPermitted,
    Unavailable,
)
from shardlog.metadata.generated import etcd_pb2 as pb

ANSWER_BYTES_MAX = 16 << 20
WINDOW_BYTES = 64 << 10
"""What gRPC takes in of a stream that nobody reads."""
_WANTS_LEADER = ("hasleader", "true")


def _options(settings: EtcdSettings) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        ("grpc.keepalive_time_ms", settings.keepalive_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_ms // 2),
        # gRPC goes by this one, which is a minute otherwise.
        ("grpc.http2.ping_timeout_ms", settings.keepalive_ms // 2),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        # A write must never be sent twice, and a new connection not wait for an older one's turn.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]
    if settings.tls and settings.tls.name:
        options.append(("grpc.ssl_target_name_override", settings.tls.name))
    return options


def _credentials(where: str, tls: EtcdTls) -> grpc.ChannelCredentials:
    def content(path: str | None) -> bytes | None:
        try:
            return Path(path).read_bytes() if path else None
        except OSError as failure:
            raise CannotOpen(where, f"{path}: {failure.strerror or failure}") from failure

    return grpc.ssl_channel_credentials(
        root_certificates=content(tls.ca_file),
        private_key=content(tls.key_file),
        certificate_chain=content(tls.cert_file),
    )


class Link:
    """`users` counts who is on it; whoever owns it closes it when nobody is."""

    __slots__ = ("_channel", "_settings", "_stubs", "_token", "endpoint", "retired", "users")

    def __init__(self, settings: EtcdSettings, endpoint: str) -> None:
        self.endpoint = endpoint
        self.users = 0
        self.retired = False
        self._settings = settings
        self._token = ""
        self._stubs: dict[str, Any] = {}
        options = _options(settings)
        if settings.tls:
            credentials = _credentials(endpoint, settings.tls)
            self._channel = grpc.aio.secure_channel(endpoint, credentials, options)
        else:
            self._channel = grpc.aio.insecure_channel(endpoint, options)

    @property
    def is_connected(self) -> bool:
        return bool(self._channel.get_state() is grpc.ChannelConnectivity.READY)

    async def connect(self, timeout_s: float) -> Any:
        """Read from the member once, so that it must know a leader; the answer's header."""
        async with asyncio.timeout(timeout_s):
            if self._settings.user:
                await self._authenticate(timeout_s)
            probe = pb.RangeRequest(key=self._settings.prefix.encode())
            return (await self.unary(RANGE, probe, timeout_s)).header

    async def unary(self, method: Method, request: Any, timeout_s: float) -> Any:
        try:
            return await self._unary(method, request, timeout_s)
        except Reauthenticate as expired:
            if not self._settings.user:
                raise NotPermitted(self.endpoint, str(expired)) from None
        await self._authenticate(timeout_s)
        try:
            return await self._unary(method, request, timeout_s)
        except Reauthenticate as refused:
            raise NotPermitted(self.endpoint, str(refused)) from None

    async def _unary(self, method: Method, request: Any, timeout_s: float) -> Any:
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = self._stubs[method.path] = self._channel.unary_unary(
                method.path, method.request.SerializeToString, method.response.FromString
            )
        try:
            return await stub(request, timeout=timeout_s, metadata=self._metadata())
        except grpc.RpcError as error:
            raise translated(self.endpoint, error) from None

    async def _authenticate(self, timeout_s: float) -> None:
        self._token = ""
        request = pb.AuthenticateRequest(name=self._settings.user, password=self._settings.password)
        self._token = (await self._unary(AUTHENTICATE, request, timeout_s)).token

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (_WANTS_LEADER, ("token", self._token)) if self._token else (_WANTS_LEADER,)

    def stream(self, method: Method) -> Stream:
        opened = self._channel.stream_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )
        return Stream(self.endpoint, opened(metadata=self._metadata()))

    async def close(self) -> None:
        await self._channel.close()


class Stream:
    """Requests one way, answers the other.  A read or write that is cancelled ends it."""

    __slots__ = ("_call", "_end", "_where")

    def __init__(self, where: str, call: Any) -> None:
        self._where = where
        self._call = call
        # What whoever reads it is told, once it was ended from this side.
        self._end: MetadataFailure | None = None

    async def write(self, request: Any, timeout_s: float) -> None:
        await self._done(self._call.write(request), timeout_s)

    async def read(self, timeout_s: float | None = None) -> Any:
        answer = await self._done(self._call.read(), timeout_s)
        if answer is grpc.aio.EOF:
            raise Unavailable(self._where, "the stream has ended")
        return answer

    async def _done(self, step: Any, timeout_s: float | None) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                return await step
        except TimeoutError:
            raise Unavailable(self._where, "no answer in time") from None
        except asyncio.CancelledError:
            # gRPC says so too when the stream was ended; then nobody cancelled the reader.
            task = asyncio.current_task()
            if self._end and not (task and task.cancelling()):
                raise self._end from None
            raise
        except asyncio.InvalidStateError:
            raise Unavailable(self._where, "the stream has ended") from None
        except grpc.RpcError as error:
            failure = translated(self._where, error)
            if isinstance(failure, Reauthenticate):
                failure = Unavailable(self._where, str(failure))
            raise failure from None

    def close(self) -> None:
        self._end = self._end or Closed(self._where)
        self._call.cancel()

    def give_up(self) -> None:
        self._end = self._end or Unavailable(self._where, "the connection was given up")
        self._call.cancel()
