"""Frames: how the data plane puts messages on a stream, the same on every hop.

A frame is a head of 8 bytes and a payload.  All numbers are little-endian:

    u32 length of the payload    u8 type    u8 flags    u16 channel

A channel is a connection-local number for a shard, bound by ATTACH, so that no hot frame carries
names.  Hot frames start with a fixed struct, and what follows it (a body, raw entries) is never
looked at here.  Raw entries stand on the wire as on disk, header by header and body by body, so
that a node may send them straight from a segment.

The decoder checks type, flags and length, and nothing else: behind it `unpack_from` cannot fail.
A payload is a view of the bytes that were fed, or, when it came in pieces, of a buffer of its own;
both are never written again, so a view may be kept.  Encoders return buffers for `writelines` and
never join a body.

`docs/frames.md` has the tables; a test compares them with these structures.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from shardlog.transport.failures import FrameTooLarge, MalformedFrame

Buffer = bytes | bytearray | memoryview

HEAD = struct.Struct("<IBBH")
HEAD_BYTES = HEAD.size
FRAME_BYTES_MAX = 16 << 20
"""What a payload may have unless a receiver says otherwise."""
GREETING_BYTES_MAX = 4096
"""What a payload may have before both sides have greeted each other."""
CHANNELS_MAX = 1 << 16


class FrameType(IntEnum):
    """Every frame.  The numbers are part of the format and never given twice."""

    HELLO = 1
    WELCOME = 2
    GOODBYE = 3
    PING = 4
    PONG = 5
    ATTACH = 6
    ATTACHED = 7
    MESSAGE = 8
    REFUSED = 9
    PROOF = 10
    REGISTER = 16
    REGISTERED = 17
    APPEND = 18
    APPENDED = 19
    READ = 20
    READ_RESULT = 21
    LOCATE = 22
    LOCATED = 23
    ENTRIES = 32
    ACK = 33
    PROGRESS = 34
    HEARTBEAT = 35
    FETCHED = 36


READ_VERIFIED = 0x01
"""Flag of READ: verify the entries before they are sent, and repair what is bad."""
READ_TAIL = 0x02
"""Flag of READ: whatever is committed here will do, and if nothing is yet, wait for it a while.

The answer is raw: it holds control entries too, and begins with the entry that holds `start`.
"""
READ_OWN = 0x04
"""Flag of READ: this replica's own copy, whether it leads or not; raw, at once, not repaired."""
HEARTBEAT_QUORUM_FRESH = 0x01
"""Flag of HEARTBEAT: the sender has lately heard a replication quorum."""

FIXED: dict[FrameType, struct.Struct] = {
    FrameType.HELLO: struct.Struct("<4sBBBBI"),
    FrameType.WELCOME: struct.Struct("<BBHI"),
    FrameType.GOODBYE: struct.Struct("<B3x"),
    FrameType.PING: struct.Struct("<Q"),
    FrameType.PONG: struct.Struct("<QQ"),
    FrameType.ATTACH: struct.Struct("<QQHHHH"),
    FrameType.ATTACHED: struct.Struct("<Q"),
    FrameType.MESSAGE: struct.Struct("<"),
    FrameType.REFUSED: struct.Struct("<QQHHIQQQ"),
    FrameType.PROOF: struct.Struct("<32s"),
    FrameType.REGISTER: struct.Struct("<Q"),
    FrameType.REGISTERED: struct.Struct("<QQ"),
    FrameType.APPEND: struct.Struct("<QQQII"),
    FrameType.APPENDED: struct.Struct("<QQQ"),
    FrameType.READ: struct.Struct("<QQII"),
    FrameType.READ_RESULT: struct.Struct("<QQII"),
    FrameType.LOCATE: struct.Struct("<QQ"),
    FrameType.LOCATED: struct.Struct("<QQQQ"),
    FrameType.ENTRIES: struct.Struct("<QQQII"),
    FrameType.ACK: struct.Struct("<QQQQ"),
    FrameType.PROGRESS: struct.Struct("<QQ"),
    FrameType.HEARTBEAT: struct.Struct("<QQQQ"),
    FrameType.FETCHED: struct.Struct("<QII"),
}
"""What every payload of a type starts with; all of it, for the types not in `OPEN_ENDED`."""

OPEN_ENDED = frozenset(
    {
        FrameType.HELLO,
        FrameType.WELCOME,
        FrameType.GOODBYE,
        FrameType.ATTACH,
        FrameType.MESSAGE,
        FrameType.REFUSED,
        FrameType.APPEND,
        FrameType.READ_RESULT,
        FrameType.ENTRIES,
        FrameType.FETCHED,
    }
)

FLAGS: dict[FrameType, int] = {
    FrameType.READ: READ_VERIFIED | READ_TAIL | READ_OWN,
    FrameType.HEARTBEAT: HEARTBEAT_QUORUM_FRESH,
}
"""The flags that a type knows; any other bit must be 0."""


class Frame(NamedTuple):
    """One frame.  `type` is a plain number: it compares equal to a `FrameType`."""

    type: int
    flags: int
    channel: int
    payload: memoryview


_NEVER = 1 << 32
_SHORTEST = [_NEVER] * 256
_LONGEST = [0] * 256
_OTHER_FLAGS = [0xFF] * 256
for _type, _struct in FIXED.items():
    _SHORTEST[_type] = _struct.size
    _LONGEST[_type] = _NEVER if _type in OPEN_ENDED else _struct.size
    _OTHER_FLAGS[_type] = 0xFF & ~FLAGS.get(_type, 0)


@cache
def _longest_within(most: int) -> list[int]:
    return [min(each, most) for each in _LONGEST]


_new = tuple.__new__
_unpack_head = HEAD.unpack_from


class Decoder:
    """Bytes in, frames out.  After a failure it gives nothing but that failure.

    Memory is bounded by one frame: what has been promised by a length is not reserved before it
    comes.  Every byte is copied at most once, when a frame comes in more than one piece.
    """

    __slots__ = ("_failure", "_frame_bytes_max", "_longest", "_partial")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._partial = bytearray()  # less than one whole frame
        self._failure: MalformedFrame | None = None

    @property
    def frame_bytes_max(self) -> int:
        """The longest payload that is accepted."""
        return self._frame_bytes_max

    @frame_bytes_max.setter
    def frame_bytes_max(self, most: int) -> None:
        self._frame_bytes_max = most
        self._longest = _longest_within(most)

    @property
    def waiting_bytes(self) -> int:
        """What has come of a frame that is not whole yet."""
        return len(self._partial)

    @property
    def awaited_bytes(self) -> int:
        """All bytes of the frame that is not whole yet; its head must be here."""
        length: int = _unpack_head(self._partial)[0]
        return HEAD_BYTES + length

    def total_of(self, data: memoryview) -> int:
        """All bytes of the frame that begins with `data`, if that is the next; 0 if none does."""
        if self._partial or self._failure is not None or len(data) < HEAD_BYTES:
            return 0
        length: int
        length, kind, flags, _ = _unpack_head(data)
        if not _SHORTEST[kind] <= length <= self._longest[kind] or flags & _OTHER_FLAGS[kind]:
            return 0
        return HEAD_BYTES + length

    @property
    def partial(self) -> bytearray:
        """What has come of that frame; who goes on with it says `forget`."""
        return self._partial

    def forget(self) -> None:
        """What is not whole yet never will be here."""
        self._partial = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now.  `data` must not change afterwards."""
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))
        frames: list[Frame] = []
        try:
            at = self._complete(data, frames) if self._partial else 0
            self._split(data, at, frames)
        except MalformedFrame as failure:
            failure.before = frames
            self._failure = failure
            self._partial = bytearray()
            raise
        return frames

    def _split(self, data: bytes, at: int, frames: list[Frame]) -> None:
        view = memoryview(data)
        end = len(data)
        unpack, new, shortest, longest = _unpack_head, _new, _SHORTEST, self._longest
        while end - at >= 8:
            length, kind, flags, channel = unpack(data, at)
            if not shortest[kind] <= length <= longest[kind] or flags & _OTHER_FLAGS[kind]:
                raise self._wrong(length, kind, flags)
            stop = at + 8 + length
            if stop > end:
                break
            frames.append(new(Frame, (kind, flags, channel, view[at + 8 : stop])))
            at = stop
        if at < end:
            self._partial += view[at:]

    def _complete(self, data: bytes, frames: list[Frame]) -> int:
        """Go on with the frame that has begun; returns where the next one starts in `data`."""
        partial = self._partial
        at = 0
        if len(partial) < HEAD_BYTES:
            at = HEAD_BYTES - len(partial)
            partial += memoryview(data)[:at]
            if len(partial) < HEAD_BYTES:
                return len(data)
        length: int
        length, kind, flags, channel = _unpack_head(partial)
        if not _SHORTEST[kind] <= length <= self._longest[kind] or flags & _OTHER_FLAGS[kind]:
            raise self._wrong(length, kind, flags)
        stop = at + HEAD_BYTES + length - len(partial)
        partial += memoryview(data)[at:stop]
        if stop <= len(data):
            self._partial = bytearray()
            frames.append(Frame(kind, flags, channel, memoryview(partial)[HEAD_BYTES:]))
        return min(stop, len(data))

    def _wrong(self, length: int, kind: int, flags: int) -> MalformedFrame:
        if _SHORTEST[kind] == _NEVER:
            return MalformedFrame(f"no frame has type {kind}")
        name = FrameType(kind).name
        if flags & _OTHER_FLAGS[kind]:
            return MalformedFrame(f"{name} has no flags {flags:#04x}")
        if length > self.frame_bytes_max:
            return FrameTooLarge(f"{name} of {length} bytes, more than {self.frame_bytes_max}")
        return MalformedFrame(f"{name} cannot have {length} bytes")


# --- encoders ------------------------------------------------------------------------------------


def _with_head(kind: FrameType) -> struct.Struct:
    return struct.Struct(HEAD.format + FIXED[kind].format.lstrip("<"))


_APPEND = _with_head(FrameType.APPEND).pack
_APPENDED = _with_head(FrameType.APPENDED).pack
_REGISTER = _with_head(FrameType.REGISTER).pack
_REGISTERED = _with_head(FrameType.REGISTERED).pack
_READ = _with_head(FrameType.READ).pack
_READ_RESULT = _with_head(FrameType.READ_RESULT).pack
_LOCATE = _with_head(FrameType.LOCATE).pack
_LOCATED = _with_head(FrameType.LOCATED).pack
_ENTRIES = _with_head(FrameType.ENTRIES).pack
_FETCHED = _with_head(FrameType.FETCHED).pack
_ACK = _with_head(FrameType.ACK).pack
_PROGRESS = _with_head(FrameType.PROGRESS).pack
_HEARTBEAT = _with_head(FrameType.HEARTBEAT).pack

_APPEND_BYTES = FIXED[FrameType.APPEND].size
_READ_RESULT_BYTES = FIXED[FrameType.READ_RESULT].size
_ENTRIES_BYTES = FIXED[FrameType.ENTRIES].size
_FETCHED_BYTES = FIXED[FrameType.FETCHED].size


def encode(kind: FrameType, channel: int, payload: Buffer = b"", flags: int = 0) -> list[Buffer]:
    """Any frame, from a payload made elsewhere."""
    head = HEAD.pack(len(payload), kind, flags, channel)
    return [head, payload] if payload else [head]


def encode_append(
    channel: int, session: int, request: int, count: int, body_checksum: int, body: Buffer
) -> list[Buffer]:
    length = _APPEND_BYTES + len(body)
    return [_APPEND(length, 18, 0, channel, session, request, body_checksum, count, 0), body]


def encode_appended(channel: int, session: int, request: int, base: int) -> list[Buffer]:
    return [_APPENDED(24, 19, 0, channel, session, request, base)]


def encode_register(channel: int, nonce: int) -> list[Buffer]:
    return [_REGISTER(8, 16, 0, channel, nonce)]


def encode_registered(channel: int, nonce: int, session: int) -> list[Buffer]:
    return [_REGISTERED(16, 17, 0, channel, nonce, session)]


def encode_read(
    channel: int,
    nonce: int,
    start: int,
    entries_max: int,
    bytes_max: int = 0,
    *,
    verified: bool = False,
    tail: bool = False,
    own: bool = False,
) -> list[Buffer]:
    """`bytes_max` bounds the answer's entries; 0 leaves that to the node."""
    flags = (READ_VERIFIED if verified else 0) | (READ_TAIL if tail else 0)
    flags |= READ_OWN if own else 0
    return [_READ(24, 20, flags, channel, nonce, start, entries_max, bytes_max)]


def encode_read_result_head(
    channel: int, nonce: int, commit: int, count: int, raw_bytes: int
) -> bytes:
    """All but the `count` raw entries of `raw_bytes`, which must be what is sent next."""
    length = _READ_RESULT_BYTES + raw_bytes
    return _READ_RESULT(length, 21, 0, channel, nonce, commit, count, 0)


def encode_read_result(
    channel: int, nonce: int, commit: int, count: int, raw: list[Buffer]
) -> list[Buffer]:
    head = encode_read_result_head(channel, nonce, commit, count, sum(map(len, raw)))
    return [head, *raw]


def encode_locate(channel: int, nonce: int, timestamp_ms: int) -> list[Buffer]:
    return [_LOCATE(16, 22, 0, channel, nonce, timestamp_ms)]


def encode_located(channel: int, nonce: int, offset: int, first: int, commit: int) -> list[Buffer]:
    return [_LOCATED(32, 23, 0, channel, nonce, offset, first, commit)]


def encode_entries(
    channel: int, epoch: int, commit: int, first: int, count: int, raw: list[Buffer]
) -> list[Buffer]:
    length = _ENTRIES_BYTES + sum(map(len, raw))
    return [_ENTRIES(length, 32, 0, channel, epoch, commit, first, count, 0), *raw]


def encode_fetched(
    channel: int, epoch: int, count: int, more: int, raw: list[Buffer]
) -> list[Buffer]:
    length = _FETCHED_BYTES + sum(map(len, raw))
    return [_FETCHED(length, 36, 0, channel, epoch, count, more), *raw]


def encode_ack(channel: int, epoch: int, end: int, at: int, beat: int) -> list[Buffer]:
    return [_ACK(32, 33, 0, channel, epoch, end, at, beat)]


def encode_progress(channel: int, epoch: int, at: int) -> list[Buffer]:
    return [_PROGRESS(16, 34, 0, channel, epoch, at)]


def encode_heartbeat(
    channel: int, epoch: int, commit: int, first: int, beat: int, quorum_fresh: bool
) -> list[Buffer]:
    return [_HEARTBEAT(32, 35, int(quorum_fresh), channel, epoch, commit, first, beat)]
