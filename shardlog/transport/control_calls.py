"""Which message goes by which RPC, and envelopes as calls and answers.

Pure conversion: `control` puts it on the network.  Every call carries its route, so that a node
can check shard, incarnation and version without any state of the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shardlog.protocol import messages
from shardlog.protocol.messages import Envelope, Message
from shardlog.transport.failures import MalformedMessage, VersionMismatch
from shardlog.transport.generated import control_pb2
from shardlog.transport.message_parts import require_parts
from shardlog.transport.wire import OneOf, Record, parsed, record_of

Addresses = Mapping[str, str]
"""Where the data plane of each node is, as host:port."""
CONTROL_VERSION = 1
SERVICE = control_pb2.DESCRIPTOR.services_by_name["Control"].full_name

RPCS: dict[str, type[Message]] = {
    "Create": messages.Create,
    "Fence": messages.Fence,
    "BecomeLeader": messages.BecomeLeader,
    "AddFollower": messages.AddFollower,
    "PrepareReconfig": messages.Prepare,
    "CommitReconfig": messages.Commit,
    "AbortReconfig": messages.Abort,
    "DescribeSnapshot": messages.SnapshotRequest,
    "InstallSnapshot": messages.InstallSnapshot,
    "PauseWrites": messages.PauseWrites,
    "Trim": messages.Trim,
    "DeleteShard": messages.Destroy,
    "Status": messages.StatusRequest,
}
FETCH_SNAPSHOT = "FetchSnapshot"
STATUS_OF_MANY = "StatusOfMany"
MANY_MAX = 1000
"""Questions in one such call; a coordinator asks half as many."""
MANY_BYTES_MAX = 1 << 20
_MANY_PARTS = (control_pb2.StatusOfManyCall.DESCRIPTOR.fields_by_name["calls"].number,)
NEWS = "News"

ANSWERS: list[type[Message]] = [
    messages.Created,
    messages.FenceAnswer,
    messages.BecameLeader,
    messages.CannotServe,
    messages.FollowerAdded,
    messages.Prepared,
    messages.Committed,
    messages.Aborted,
    messages.SnapshotOffer,
    messages.SnapshotInstalled,
    messages.WritesPaused,
    messages.Destroyed,
    messages.StatusReport,
    messages.Refused,
]


class Call(NamedTuple):
    """One RPC: the protobuf that asks, and the codec of the message in it."""

    rpc: str
    protobuf: type[Any]
    record: Record

    @property
    def path(self) -> str:
        return path_of(self.rpc)

    def encode(self, envelope: Envelope, addresses: Addresses) -> bytes:
        route = _route(envelope)
        route.addresses.update(addresses)
        call = self.protobuf(route=route, message=self.record.encode(envelope.message))
        data: bytes = call.SerializeToString()
        return data

    def decode(self, data: bytes) -> tuple[Envelope, Addresses]:
        call = parsed(self.protobuf, data)
        if not call.HasField("message"):
            raise MalformedMessage(f"{self.rpc} without a message")
        return _envelope(call, self.record.decode(call.message)), dict(call.route.addresses)


def _call(rpc: str, kind: type[Message]) -> Call:
    return Call(rpc, getattr(control_pb2, f"{rpc}Call"), record_of(kind))


CALLS = {kind: _call(rpc, kind) for rpc, kind in RPCS.items()}
FETCH = _call(FETCH_SNAPSHOT, messages.Fetch)
_STATUS = CALLS[messages.StatusRequest]
_ANSWER = OneOf(control_pb2.Answer, "answer", list(ANSWERS))


def encode_answer(asked: Envelope, answer: Envelope | None) -> bytes:
    """None where there is nothing to tell: the call was taken."""
    if answer is None:
        back = Envelope(
            asked.shard, asked.dst, asked.dst_incarnation, asked.src, asked.src_incarnation,
            asked.message,
        )  # fmt: skip
        made = control_pb2.Answer(route=_route(back))
    else:
        made = _answer(answer)
    data: bytes = made.SerializeToString()
    return data


def _answer(answer: Envelope) -> Any:
    made = _ANSWER.encode(answer.message)
    made.route.CopyFrom(_route(answer))
    return made


def decode_answer(data: bytes) -> Envelope | None:
    return _answered(parsed(control_pb2.Answer, data))


def _answered(answer: Any) -> Envelope | None:
    if answer.HasField("route") and answer.WhichOneof("answer") is None:
        return None
    return _envelope(answer, _ANSWER.decode(answer))


def _route(envelope: Envelope) -> Any:
    return control_pb2.Route(
        version=CONTROL_VERSION,
        shard=envelope.shard,
        src=envelope.src,
        src_incarnation=envelope.src_incarnation,
        dst=envelope.dst,
        dst_incarnation=envelope.dst_incarnation,
    )


def _envelope(found: Any, message: Message) -> Envelope:
    if not found.HasField("route"):
        raise MalformedMessage(f"{type(found).__name__} without a route")
    route = found.route
    _require_version(route.version)
    return Envelope(
        route.shard, route.src, route.src_incarnation, route.dst, route.dst_incarnation, message
    )


def _require_version(version: int) -> None:
    if version != CONTROL_VERSION:
        raise VersionMismatch(f"version {version} came, this side speaks {CONTROL_VERSION}")


# --- many at once --------------------------------------------------------------------------------


def path_of(rpc: str) -> str:
    return f"/{SERVICE}/{rpc}"


def encode_status_of_many(envelopes: Sequence[Envelope]) -> bytes:
    record = _STATUS.record
    calls = [
        control_pb2.StatusCall(route=_route(each), message=record.encode(each.message))
        for each in envelopes
    ]
    data: bytes = control_pb2.StatusOfManyCall(calls=calls).SerializeToString()
    return data


def decode_status_of_many(data: bytes) -> list[Envelope | None]:
    """None for each that cannot be understood: the others are answered nevertheless.

    Raises `MalformedMessage` for more than `MANY_MAX`, or `MANY_BYTES_MAX`.
    """
    if len(data) > MANY_BYTES_MAX:
        raise MalformedMessage(f"questions of {len(data)} bytes, more than {MANY_BYTES_MAX}")
    require_parts(data, _MANY_PARTS, MANY_MAX, 2 * MANY_MAX)
    found: list[Envelope | None] = []
    for call in parsed(control_pb2.StatusOfManyCall, data).calls:
        try:
            found.append(_envelope(call, _STATUS.record.decode(call.message)))
        except (MalformedMessage, VersionMismatch):
            found.append(None)
    return found


def encode_answers(answers: Sequence[Envelope | None]) -> bytes:
    made = [control_pb2.Answer() if each is None else _answer(each) for each in answers]
    data: bytes = control_pb2.AnswersOfMany(answers=made).SerializeToString()
    return data


def decode_answers(data: bytes) -> list[Envelope | None]:
    """None where there is no answer."""
    answers = parsed(control_pb2.AnswersOfMany, data).answers
    return [_answered(each) if each.HasField("route") else None for each in answers]


class NodeNews(NamedTuple):
    """What has changed on a node.  `life` tells one run of its process from another.

    `shards` are those whose replicas there have changed since the number that was asked for.
    """

    life: int
    number: int
    shards: tuple[str, ...]


class NewsRequest(NamedTuple):
    """For the news of `node` since number `since` of a life of it."""

    node: str
    life: int
    since: int


def encode_news_request(asked: NewsRequest) -> bytes:
    call = control_pb2.NewsCall(version=CONTROL_VERSION, **asked._asdict())
    data: bytes = call.SerializeToString()
    return data


def decode_news_request(data: bytes) -> NewsRequest:
    found = parsed(control_pb2.NewsCall, data)
    _require_version(found.version)
    return NewsRequest(found.node, found.life, found.since)


def encode_news(news: NodeNews) -> bytes:
    made = control_pb2.NewsAnswer(version=CONTROL_VERSION, **news._asdict())
    data: bytes = made.SerializeToString()
    return data


def decode_news(data: bytes) -> NodeNews:
    found = parsed(control_pb2.NewsAnswer, data)
    _require_version(found.version)
    return NodeNews(found.life, found.number, tuple(found.shards))


# --- snapshots -----------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """A piece of a snapshot."""

    position: int
    data: bytes
    checksum: int
    last: bool


def encode_chunk(chunk: Chunk) -> bytes:
    data: bytes = control_pb2.SnapshotChunk(**chunk._asdict()).SerializeToString()
    return data


def decode_chunk(data: bytes) -> Chunk:
    found = parsed(control_pb2.SnapshotChunk, data)
    return Chunk(found.position, found.data, found.checksum, found.last)
