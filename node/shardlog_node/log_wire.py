"""The public service's messages: what of them makes sense, and what becomes of it.

Nobody else sees their protobuf types.  Whatever can be wrong with a request is an `Unfit` here,
with the `Failure` to answer; refusals of the replicas become failures too, by one table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardlog.checksum import seal_body
from shardlog.protocol import failures as refusals
from shardlog.protocol.failures import Refusal
from shardlog.transport.batch import PREFIX, Batch, BatchBuilder
from shardlog.transport.compression import Compression
from shardlog.transport.failures import MalformedBatch, MalformedMessage
from shardlog.transport.generated import log_pb2
from shardlog.transport.message_parts import require_parts
from shardlog.transport.wire import parsed

VERSION = 1
SERVICE: str = log_pb2.DESCRIPTOR.services_by_name["Log"].full_name

Failure = log_pb2.Failure

RECORDS_MAX = 1 << 16
"""In one request, unless they come as a body."""
_PARTS_MAX = 2 * RECORDS_MAX
"""Records and headers in one request: an object each, before anything of them can be looked at."""
_FIELDS_MAX = 8 * RECORDS_MAX
_PARTS = tuple(
    kind.DESCRIPTOR.fields_by_name[name].number
    for kind, name in (
        (log_pb2.AppendRequest, "records"),
        (log_pb2.Records, "records"),
        (log_pb2.Record, "headers"),
    )
)


class Unfit(Exception):  # noqa: N818 - named after what it is
    """What was asked will not be done."""

    def __init__(self, failure: log_pb2.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def invalid(message: str) -> Unfit:
    return Unfit(Failure(code=Failure.CODE_INVALID, message=message))


# --- requests ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packed:
    """What to append: a body, how many records are in it, and what it has to sum up to."""

    count: int
    checksum: int
    body: bytes


def parse_append(data: bytes) -> log_pb2.AppendRequest:
    try:
        require_parts(data, _PARTS, _PARTS_MAX, _FIELDS_MAX)
    except MalformedMessage as failure:
        raise invalid(str(failure)) from failure
    request: log_pb2.AppendRequest = _parsed(log_pb2.AppendRequest, data)
    if len(request.records.records) > RECORDS_MAX:
        raise invalid(f"more than {RECORDS_MAX} records in one request")
    return request


def parse_read(data: bytes) -> log_pb2.ReadRequest:
    request: log_pb2.ReadRequest = _parsed(log_pb2.ReadRequest, data)
    check_first(request)
    return request


def _parsed(kind: type[Any], data: bytes) -> Any:
    try:
        return parsed(kind, data)
    except MalformedMessage as failure:
        raise invalid(str(failure)) from failure


def check_first(request: log_pb2.AppendRequest | log_pb2.ReadRequest) -> None:
    """What the first request of a stream has to say."""
    if request.version != VERSION:
        told = f"version {request.version} was asked for, this node speaks {VERSION}"
        raise Unfit(Failure(code=Failure.CODE_VERSION, message=told))
    if not request.shard:
        raise invalid("a shard has to be named")


def pack(request: log_pb2.AppendRequest) -> Packed:
    """Its records as a body; one that came as such is looked into unless it is compressed."""
    content = request.WhichOneof("content")
    if content == "records":
        body = _body(request.records.records)
        return Packed(len(request.records.records), seal_body(body), body)
    if content != "batch":
        raise invalid("neither records nor a batch")
    batch = request.batch
    _check_body(batch.body, batch.count)
    return Packed(batch.count, batch.crc32c | len(batch.body) << 32, batch.body)


def _body(records: Any) -> bytes:
    builder = BatchBuilder()
    try:
        for each in records:
            builder.append(
                each.value,
                each.key if each.HasField("key") else None,
                each.timestamp_ms if each.HasField("timestamp_ms") else None,
                [(header.name, header.value) for header in each.headers],
            )
        return builder.body()
    except ValueError as failure:
        raise invalid(str(failure)) from failure
    except struct.error as failure:
        raise invalid("a header's name has at most 65535 bytes") from failure


def _check_body(body: bytes, count: int) -> None:
    try:
        if len(body) < PREFIX.size or body[0] == Compression.NONE:
            Batch(body, count)
    except MalformedBatch as failure:
        raise invalid(f"no batch: {failure}") from failure


# --- refusals ------------------------------------------------------------------------------------

AddressOf = Callable[[str], str]
"""Where the public service of a node is, by its name; empty if nobody has told."""


def failure_of(refusal: Refusal, shard: str, address_of: AddressOf) -> log_pb2.Failure:
    match refusal:
        case refusals.NotLeader(None):
            return _again(Failure.CODE_NOT_LEADER, f"another node leads {shard}, or soon will")
        case refusals.NotLeader(str(node)):
            failure = _again(Failure.CODE_NOT_LEADER, f"{node} leads {shard}")
            failure.leader_node, failure.leader = node, address_of(node)
            return failure
        case refusals.NoReplica():
            told = f"no replica of {shard} is here"
            return Failure(code=Failure.CODE_NO_SHARD, message=told)
        case refusals.NotReady(reason):
            return _again(Failure.CODE_TRY_AGAIN, reason)
        case refusals.Overloaded():
            return _again(Failure.CODE_TRY_AGAIN, "too much is under way here")
        case refusals.CorruptEntry(entry):
            return _again(Failure.CODE_TRY_AGAIN, f"the entry {entry} is being repaired")
        case refusals.RequestGap(expected):
            failure = _again(Failure.CODE_REQUEST_GAP, f"request {expected} has to come first")
            failure.expected_request = expected
            return failure
        case refusals.SessionUnknown(session):
            told = f"the session {session} was evicted or never opened"
            return Failure(code=Failure.CODE_SESSION_UNKNOWN, message=told)
        case refusals.ReplyForgotten(oldest):
            told = f"answers are kept from request {oldest} on"
            return Failure(code=Failure.CODE_REPLY_FORGOTTEN, message=told)
        case refusals.DifferentRequest(base):
            told = f"another batch has this number, at offset {base}: this one is not appended"
            return Failure(code=Failure.CODE_DIFFERENT_REQUEST, message=told)
        case refusals.OffsetTrimmed(first):
            told = f"the log starts at {first}"
            return Failure(code=Failure.CODE_OFFSET_TRIMMED, message=told, first_offset=first)
        case refusals.EntryLost(first, end):
            return lost(first, end)
        case refusals.Illegal(reason):
            return Failure(code=Failure.CODE_INVALID, message=reason)
        case _:
            return _again(Failure.CODE_TRY_AGAIN, str(refusal))


def lost(first: int, end: int) -> log_pb2.Failure:
    told = f"what stood in [{first}, {end}) was damaged on every node, and given up"
    return Failure(code=Failure.CODE_ENTRY_LOST, message=told, next_offset=end)


def _again(code: Failure.Code, message: str) -> log_pb2.Failure:
    return Failure(code=code, message=message, retriable=True)


# --- answers -------------------------------------------------------------------------------------


def opened(session: int) -> bytes:
    return _bytes(log_pb2.AppendResponse(version=VERSION, session=session))


def appended(session: int, request: int, base_offset: int) -> bytes:
    return _bytes(
        log_pb2.AppendResponse(
            version=VERSION, session=session, request=request, base_offset=base_offset
        )
    )


def not_appended(session: int, request: int, failure: log_pb2.Failure) -> bytes:
    return _bytes(
        log_pb2.AppendResponse(version=VERSION, session=session, request=request, failure=failure)
    )


def not_read(failure: log_pb2.Failure) -> bytes:
    return _bytes(log_pb2.ReadResponse(version=VERSION, failure=failure))


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
