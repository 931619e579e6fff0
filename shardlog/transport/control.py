"""The control plane over gRPC, in terms of envelopes.

A refusal is an answer like any other: gRPC's status tells only what happened to the call on its
way.  `grpc.RpcError` is translated in one place and goes no further, and nobody above sees a
protobuf type.  Messages are encoded by our own codecs, so the calls are made by name and no
generated service code is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import grpc
from crc32c import crc32c

from shardlog.protocol.messages import Envelope
from shardlog.transport.cluster_key import ClusterKey
from shardlog.transport.control_calls import (
    CALLS,
    FETCH,
    NEWS,
    SERVICE,
    STATUS_OF_MANY,
    Addresses,
    Call,
    Chunk,
    NewsRequest,
    NodeNews,
    decode_answer,
    decode_answers,
    decode_chunk,
    decode_news,
    decode_news_request,
    decode_status_of_many,
    encode_answer,
    encode_answers,
    encode_chunk,
    encode_news,
    encode_news_request,
    encode_status_of_many,
    path_of,
)
from shardlog.transport.failures import (
    DeadlineExceeded,
    Malformed,
    MalformedMessage,
    NotPermitted,
    Rejected,
    TransportFailure,
    Unavailable,
    UnknownCall,
    Unreachable,
    VersionMismatch,
)
from shardlog.transport.frames import Buffer
from shardlog.transport.grpc_listening import GrpcListener

T = TypeVar("T")
Handle = Callable[[Envelope, Addresses], Awaitable[Envelope | None]]
"""Does what an envelope asks, told where the nodes are that it speaks of.

None if there is nothing to tell but that it was taken.  A `TransportFailure` reaches the caller.
"""
FetchSnapshot = Callable[[Envelope], AsyncIterator[Buffer]]
"""The raw entries that a `Fetch` asks for, in pieces of any size."""
AnswerAtOnce = Callable[[Envelope], Envelope | None]
"""The answer to a `StatusRequest`; None if there is none without waiting."""
TellNews = Callable[[NewsRequest], NodeNews]
"""What has changed on the node.  A `TransportFailure` reaches the caller."""

KEY_METADATA = "shardlog-key"
"""Of each call: a proof of the cluster's key, for the node that it goes to."""
HEALTH_PATH = "/grpc.health.v1.Health/"


@dataclass(frozen=True, slots=True)
class ControlLimits:
    message_bytes_max: int = 16 << 20
    chunk_bytes_max: int = 1 << 20
    keepalive_ms: int = 10_000
    keepalive_timeout_ms: int = 5_000

    def options(self) -> list[tuple[str, int]]:
        """As gRPC wants to be told."""
        return [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            ("grpc.keepalive_time_ms", self.keepalive_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            # gRPC goes by this one, which is a minute otherwise.
            ("grpc.http2.ping_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", self.keepalive_ms // 2),
            ("grpc.so_reuseport", 0),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1_000),
        ]


@dataclass(frozen=True, slots=True)
class ControlTls:
    """PEM, as read from files.  A node demands certificates of those who call if `mutual`."""

    authority: bytes
    certificate: bytes | None = None
    key: bytes | None = None
    mutual: bool = True

    def of_node(self) -> Any:
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)], self.authority, require_client_auth=self.mutual
        )

    def of_caller(self) -> Any:
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


# --- the node's side -----------------------------------------------------------------------------


class ControlServer:
    """Answers calls with `handle`, and serves health and reflection beside.

    A call needs a proof that the caller has the `key`, made for this node's `name`; health needs
    none.  Without `answer_at_once` and `tell_news` there are no calls for many shards at once.
    """

    def __init__(
        self,
        handle: Handle,
        fetch_snapshot: FetchSnapshot,
        limits: ControlLimits,
        tls: ControlTls | None = None,
        answer_at_once: AnswerAtOnce | None = None,
        tell_news: TellNews | None = None,
        *,
        key: ClusterKey,
        name: str,
    ) -> None:
        self._handle = handle
        self._fetch_snapshot = fetch_snapshot
        self._limits = limits
        calls = {call.rpc: self._unary(call) for call in CALLS.values()}
        calls[FETCH.rpc] = grpc.unary_stream_rpc_method_handler(self._stream)
        if answer_at_once is not None:
            calls[STATUS_OF_MANY] = _status_of_many(answer_at_once)
        if tell_news is not None:
            calls[NEWS] = _news(tell_news)
        credentials = tls.of_node() if tls is not None else None
        self._listener = GrpcListener(
            SERVICE, calls, limits.options(), credentials, interceptors=[_KeyChecker(key, name)]
        )

    async def start(self, host: str, port: int) -> int:
        """Returns the port, which the system chooses if it is 0."""
        return await self._listener.start(host, port)

    async def set_serving(self, serving: bool) -> None:
        await self._listener.set_serving(serving)

    async def stop(self, grace_ms: int) -> None:
        await self._listener.stop(grace_ms)

    def _unary(self, call: Call) -> Any:
        async def answered(data: bytes, context: Any) -> bytes:
            asked, addresses = await _understood(call.decode, data, context)
            try:
                answer = await self._handle(asked, addresses)
            except TransportFailure as failure:
                await context.abort(_status_of(failure), str(failure))
            return encode_answer(asked, answer)

        return grpc.unary_unary_rpc_method_handler(answered)

    async def _stream(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        asked, _ = await _understood(FETCH.decode, data, context)
        position = 0
        most = self._limits.chunk_bytes_max
        try:
            async for piece in self._fetch_snapshot(asked):
                for start in range(0, len(piece), most):
                    part = bytes(piece[start : start + most])
                    yield encode_chunk(Chunk(position, part, crc32c(part), False))
                    position += len(part)
        except TransportFailure as failure:
            await context.abort(_status_of(failure), str(failure))
        yield encode_chunk(Chunk(position, b"", 0, True))


class _KeyChecker(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Ends every call without a valid proof before its message is read."""

    def __init__(self, key: ClusterKey, name: str) -> None:
        self._key = key
        self._name = name
        self._refused = grpc.stream_stream_rpc_method_handler(self._refuse)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        if details.method.startswith(HEALTH_PATH):
            return await continuation(details)
        proofs = [value for name, value in details.invocation_metadata if name == KEY_METADATA]
        if len(proofs) == 1 and self._key.proves_call(str(proofs[0]), self._name):
            return await continuation(details)
        return self._refused

    async def _refuse(self, requests: Any, context: Any) -> None:
        told = f"this is {self._name}, and the call has no proof of its cluster key"
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, told)


def _status_of_many(answer: AnswerAtOnce) -> Any:
    async def answered(data: bytes, context: Any) -> bytes:
        asked = await _understood(decode_status_of_many, data, context)
        return encode_answers([None if each is None else answer(each) for each in asked])

    return grpc.unary_unary_rpc_method_handler(answered)


def _news(tell: TellNews) -> Any:
    async def answered(data: bytes, context: Any) -> bytes:
        asked = await _understood(decode_news_request, data, context)
        try:
            news = tell(asked)
        except TransportFailure as failure:
            await context.abort(_status_of(failure), str(failure))
        return encode_news(news)

    return grpc.unary_unary_rpc_method_handler(answered)


async def _understood(decode: Callable[[bytes], T], data: bytes, context: Any) -> T:
    try:
        return decode(data)
    except VersionMismatch as failure:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(failure))
    except Malformed as failure:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(failure))
    raise AssertionError("abort raises")


# --- the caller's side ---------------------------------------------------------------------------


class ControlClient:
    """Calls nodes; keeps one channel for each address, which reconnects by itself."""

    def __init__(self, limits: ControlLimits, tls: ControlTls | None, key: ClusterKey) -> None:
        self._limits = limits
        self._key = key
        self._tls = tls
        self._channels: dict[str, Any] = {}

    def _channel(self, address: str) -> Any:
        channel = self._channels.get(address)
        if channel is None:
            options = self._limits.options()
            if self._tls is None:
                channel = grpc.aio.insecure_channel(address, options)
            else:
                channel = grpc.aio.secure_channel(address, self._tls.of_caller(), options)
            self._channels[address] = channel
        return channel

    async def call(
        self,
        address: str,
        envelope: Envelope,
        timeout_ms: int,
        addresses: Addresses = MappingProxyType({}),
    ) -> Envelope | None:
        """The answer, a refusal among them; None if the node had nothing to tell.

        `addresses` tells where the nodes are that the message speaks of.
        """
        call = CALLS.get(type(envelope.message))
        if call is None:
            raise TypeError(f"{type(envelope.message).__name__} is no call of the control plane")
        asked = call.encode(envelope, addresses)
        data = await self._invoke(address, envelope.dst, call.path, asked, timeout_ms)
        return decode_answer(data)

    async def status_of_many(
        self, address: str, envelopes: Sequence[Envelope], timeout_ms: int
    ) -> list[Envelope | None]:
        """One answer for each `StatusRequest` to the node; None where it has none."""
        node = envelopes[0].dst if envelopes else ""
        asked = encode_status_of_many(envelopes)
        path = path_of(STATUS_OF_MANY)
        answers = decode_answers(await self._invoke(address, node, path, asked, timeout_ms))
        if len(answers) != len(envelopes):
            raise MalformedMessage(f"{len(answers)} answers to {len(envelopes)} questions")
        return answers

    async def news(self, address: str, asked: NewsRequest, timeout_ms: int) -> NodeNews:
        data = encode_news_request(asked)
        return decode_news(
            await self._invoke(address, asked.node, path_of(NEWS), data, timeout_ms)
        )  # fmt: skip

    async def _invoke(
        self, address: str, node: str, path: str, asked: bytes, timeout_ms: int
    ) -> bytes:
        invoke = self._channel(address).unary_unary(path)
        proof = self._proof(node)
        try:
            data: bytes = await invoke(asked, timeout=timeout_ms / 1000, metadata=proof)
        except grpc.RpcError as failure:
            raise _translated(failure, address) from failure
        return data

    def _proof(self, node: str) -> tuple[tuple[str, str], ...]:
        return ((KEY_METADATA, self._key.call_proof(node)),)

    async def fetch_snapshot(
        self, address: str, envelope: Envelope, timeout_ms: int
    ) -> AsyncIterator[bytes]:
        """The pieces of a snapshot, each verified, and all of them: a cut stream raises."""
        invoke = self._channel(address).unary_stream(FETCH.path)
        proof = self._proof(envelope.dst)
        call = invoke(FETCH.encode(envelope, {}), timeout=timeout_ms / 1000, metadata=proof)
        position = 0
        try:
            async for data in call:
                chunk = decode_chunk(data)
                if chunk.position != position or chunk.checksum != crc32c(chunk.data):
                    raise MalformedMessage(f"a damaged piece of a snapshot at byte {position}")
                position += len(chunk.data)
                if chunk.last:
                    return
                yield chunk.data
        except grpc.RpcError as failure:
            raise _translated(failure, address) from failure
        finally:
            call.cancel()
        raise Unreachable(f"{address} ended a snapshot after {position} bytes")

    async def forget(self, address: str) -> None:
        """Close the channel to an address that is not used any more."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        await asyncio.gather(*[self.forget(address) for address in list(self._channels)])


_KINDS: dict[Any, type[TransportFailure]] = {
    grpc.StatusCode.UNAVAILABLE: Unreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.FAILED_PRECONDITION: VersionMismatch,
    grpc.StatusCode.UNAUTHENTICATED: NotPermitted,
    grpc.StatusCode.PERMISSION_DENIED: NotPermitted,
    grpc.StatusCode.INVALID_ARGUMENT: Rejected,
    grpc.StatusCode.UNIMPLEMENTED: UnknownCall,
}


def _status_of(failure: TransportFailure) -> Any:
    """What the caller translates back."""
    kinds = (status for status, kind in _KINDS.items() if isinstance(failure, kind))
    return next(kinds, grpc.StatusCode.UNKNOWN)


def _translated(failure: Any, address: str) -> TransportFailure:
    """Whatever is not known to be a rejection may have been done."""
    kind = _KINDS.get(failure.code(), Unavailable)
    return kind(f"{address}: {failure.code().name}: {failure.details()}")
