"""Frames as messages of the protocol, and back.

A driver that wants speed looks at hot frames itself; this is for everything else, and what the
tests hold the hot paths to.  A body is copied once, so that a message never keeps a whole piece of
received data alive.  Clients meet hot frames only, and need no protobuf: it is imported when a
MESSAGE comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardlog.protocol.messages import (
    Ack,
    Announce,
    Append,
    Appended,
    ClientRefused,
    Entries,
    FenceAnswer,
    Fetch,
    Fetched,
    Heartbeat,
    Message,
    Progress,
    Read,
    ReadResult,
    Refused,
    Register,
    Registered,
    SnapshotOffer,
    SnapshotRequest,
)
from shardlog.transport import frames
from shardlog.transport.entries import join_entries, whole_entries
from shardlog.transport.failures import MalformedFrame, MalformedMessage, NotPermitted
from shardlog.transport.frames import FIXED, Buffer, Frame, FrameType
from shardlog.transport.handshake import text_of
from shardlog.transport.refusal_codes import Packed, pack_refusal, unpack_refusal

# --- frame → message -----------------------------------------------------------------------------


def _append(frame: Frame) -> Append:
    fixed = FIXED[FrameType.APPEND]
    session, request, body_checksum, count, _ = fixed.unpack_from(frame.payload)
    return Append(session, request, count, bytes(frame.payload[fixed.size :]), body_checksum)


def _read(frame: Frame) -> Read:
    nonce, start, entries_max, _ = FIXED[FrameType.READ].unpack(frame.payload)
    return Read(nonce, start, entries_max)


def _read_result(frame: Frame) -> ReadResult:
    fixed = FIXED[FrameType.READ_RESULT]
    nonce, commit, count, _ = fixed.unpack_from(frame.payload)
    return ReadResult(nonce, whole_entries(frame.payload[fixed.size :], count), commit)


def _entries(frame: Frame) -> Entries:
    fixed = FIXED[FrameType.ENTRIES]
    epoch, commit, first, count, _ = fixed.unpack_from(frame.payload)
    return Entries(epoch, whole_entries(frame.payload[fixed.size :], count), commit, first)


def _fetched(frame: Frame) -> Fetched:
    fixed = FIXED[FrameType.FETCHED]
    epoch, count, more = fixed.unpack_from(frame.payload)
    return Fetched(epoch, whole_entries(frame.payload[fixed.size :], count), more)


def _heartbeat(frame: Frame) -> Heartbeat:
    fresh = bool(frame.flags & frames.HEARTBEAT_QUORUM_FRESH)
    epoch, commit, first, beat = FIXED[FrameType.HEARTBEAT].unpack(frame.payload)
    return Heartbeat(epoch, commit, first, beat, fresh)


def _refused(frame: Frame) -> ClientRefused:
    fixed = FIXED[FrameType.REFUSED]
    session, nonce, code, zero, also_zero, a, b, c = fixed.unpack_from(frame.payload)
    if zero or also_zero:
        raise MalformedFrame("REFUSED with something where nothing is defined")
    text = text_of(frame.payload[fixed.size :])
    return ClientRefused(session, nonce, unpack_refusal(Packed(code, a, b, c, text)))


def _message(frame: Frame) -> Message:
    from shardlog.transport.wire import decode_message

    try:
        return decode_message(bytes(frame.payload))
    except MalformedMessage as failure:
        raise MalformedFrame(str(failure)) from failure


def _plain(kind: FrameType, made: type[Message]) -> Callable[[Frame], Message]:
    """For frames that are the message's attributes, in order, and nothing else."""
    unpack = FIXED[kind].unpack

    def decode(frame: Frame) -> Message:
        return made(*unpack(frame.payload))

    return decode


_FROM_FRAME: dict[int, Callable[[Frame], Message]] = {
    FrameType.MESSAGE: _message,
    FrameType.REFUSED: _refused,
    FrameType.REGISTER: _plain(FrameType.REGISTER, Register),
    FrameType.REGISTERED: _plain(FrameType.REGISTERED, Registered),
    FrameType.APPEND: _append,
    FrameType.APPENDED: _plain(FrameType.APPENDED, Appended),
    FrameType.READ: _read,
    FrameType.READ_RESULT: _read_result,
    FrameType.ENTRIES: _entries,
    FrameType.ACK: _plain(FrameType.ACK, Ack),
    FrameType.PROGRESS: _plain(FrameType.PROGRESS, Progress),
    FrameType.HEARTBEAT: _heartbeat,
    FrameType.FETCHED: _fetched,
}


def to_message(frame: Frame) -> Message:
    """What a frame says; `MalformedFrame` if it says nothing that the protocol knows."""
    decode = _FROM_FRAME.get(frame.type)
    if decode is None:
        raise MalformedFrame(f"{FrameType(frame.type).name} carries no message")
    return decode(frame)


BETWEEN_REPLICAS = frozenset(
    {
        Ack,
        Announce,
        Entries,
        FenceAnswer,
        Fetch,
        Fetched,
        Heartbeat,
        Progress,
        Refused,
        SnapshotOffer,
        SnapshotRequest,
    }
)
"""What replicas tell each other: all that may come from another node over the data plane."""


def to_replica_message(frame: Frame) -> Message:
    """As `to_message`; `NotPermitted` if the message is a coordinator's or a client's."""
    message = to_message(frame)
    if type(message) not in BETWEEN_REPLICAS:
        raise NotPermitted(f"{type(message).__name__} is not for nodes to send")
    return message


# --- message → frame -----------------------------------------------------------------------------


def encode_refused(channel: int, refused: ClientRefused) -> list[Buffer]:
    code, a, b, c, text = pack_refusal(refused.refusal)
    fixed = FIXED[FrameType.REFUSED].pack(refused.session, refused.nonce, code, 0, 0, a, b, c)
    return frames.encode(FrameType.REFUSED, channel, fixed + text.encode())


_TO_FRAME: dict[type[Message], Callable[[int, Any], list[Buffer]]] = {
    ClientRefused: encode_refused,
    Register: lambda channel, m: frames.encode_register(channel, m.nonce),
    Registered: lambda channel, m: frames.encode_registered(channel, m.nonce, m.session),
    Append: lambda channel, m: frames.encode_append(
        channel, m.session, m.request, m.count, m.body_checksum, m.body
    ),
    Appended: lambda channel, m: frames.encode_appended(channel, m.session, m.request, m.base),
    Read: lambda channel, m: frames.encode_read(channel, m.nonce, m.start, m.entries_max),
    ReadResult: lambda channel, m: frames.encode_read_result(
        channel, m.nonce, m.commit, len(m.entries), join_entries(m.entries)
    ),
    Entries: lambda channel, m: frames.encode_entries(
        channel, m.epoch, m.commit, m.first, len(m.entries), join_entries(m.entries)
    ),
    Ack: lambda channel, m: frames.encode_ack(channel, m.epoch, m.end, m.at, m.beat),
    Progress: lambda channel, m: frames.encode_progress(channel, m.epoch, m.at),
    Heartbeat: lambda channel, m: frames.encode_heartbeat(
        channel, m.epoch, m.commit, m.first, m.beat, m.quorum_fresh
    ),
    Fetched: lambda channel, m: frames.encode_fetched(
        channel, m.epoch, len(m.entries), m.more, join_entries(m.entries)
    ),
}


def from_message(channel: int, message: Message) -> list[Buffer]:
    """A frame, as buffers for `writelines`."""
    encode = _TO_FRAME.get(type(message))
    if encode is not None:
        return encode(channel, message)
    from shardlog.transport.wire import encode_message

    return frames.encode(FrameType.MESSAGE, channel, encode_message(message))
