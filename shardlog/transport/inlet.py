"""Where the bytes of a connection come in.

Most reads bring many small frames, or a few of middling size: they go into one buffer for all
connections of a thread, and what was read is copied out of it, once.  Of a long frame the first
piece comes that way.  The rest is read to where the frame will stand, so that a node that catches
up, and a reader of a long log, move each byte once.

For that, room is reserved for bytes that have not come.  It is never more than a few times what
has; one who has to count every byte of strangers is asked first, and told of all that is set aside.
Fresh memory costs more than reading into it, so a few rooms are used again: as long as anybody
looks at a frame Python refuses to resize its room, and that is asked before.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import local

from shardlog.transport.frames import HEAD, HEAD_BYTES, Decoder, Frame

READ_BYTES = 256 << 10
RESERVED_AFTER_BYTES = 16 << 10
RESERVED_TIMES = 16
"""Room is reserved for a frame of which at least one in so many bytes is here."""
SPARES_MAX = 12
SPARES_BYTES_MAX = 16 << 20
"""So many rooms, and bytes of them, are kept: more than are on their way from one who feeds us."""
SPARE_BYTES_MAX = 4 << 20
"""A longer one is not kept."""


class _Scratch(local):
    """One for each thread: a read and what is made of it are never apart on one."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))
        self.spares = Spares()


class Spares:
    """Rooms of frames that came before, latest last."""

    __slots__ = ("_rooms",)

    def __init__(self) -> None:
        self._rooms: list[bytearray] = []

    def keep(self, room: bytearray) -> None:
        """It may still be looked at."""
        if len(room) <= SPARE_BYTES_MAX:
            rooms = self._rooms
            rooms.append(room)
            while len(rooms) > SPARES_MAX or sum(map(len, rooms)) > SPARES_BYTES_MAX:
                del rooms[0]

    def take(self, size: int) -> bytearray:
        """A room that nobody looks at; what stands in it may be anything."""
        for at, room in enumerate(self._rooms):
            try:
                room.append(0)
            except BufferError:
                continue
            del self._rooms[at], room[size:]
            room += bytes(size - len(room))
            return room
        return bytearray(size)


_scratch = _Scratch()


class Inlet:
    """`room` for the next bytes, and what they came to: `taken`.  For one thread."""

    __slots__ = ("_decoder", "_filled", "_frame", "_scratch", "_spares", "may_reserve")

    def __init__(self, frame_bytes_max: int) -> None:
        # Asked before so many bytes are set aside.
        self.may_reserve: Callable[[int], bool] = bool
        self._decoder = Decoder(frame_bytes_max)
        self._scratch = _scratch.view
        self._spares = _scratch.spares
        # A frame of which everything up to `_filled` is here.
        self._frame: bytearray | None = None
        self._filled = 0

    def accept(self, frame_bytes_max: int) -> None:
        """The longest payload from now on."""
        self._decoder.frame_bytes_max = frame_bytes_max

    @property
    def waiting_bytes(self) -> int:
        """What is held for a frame that is not whole yet."""
        return self._decoder.waiting_bytes if self._frame is None else len(self._frame)

    def forget(self) -> None:
        """What is not whole yet never will be."""
        self._frame = None
        self._decoder.forget()

    def room(self) -> memoryview:
        if self._frame is None:
            return self._scratch
        return memoryview(self._frame)[self._filled :]

    def taken(self, size: int) -> list[Frame]:
        """The frames that are whole now that so many bytes are in the `room`."""
        if self._frame is None:
            data = self._scratch[:size]
            decoder = self._decoder
            if size >= RESERVED_AFTER_BYTES and self._begins(data, decoder.total_of(data)):
                return []
            frames = decoder.feed(bytes(data))
            have = decoder.partial
            if len(have) >= RESERVED_AFTER_BYTES and self._begins(have, decoder.awaited_bytes):
                decoder.forget()
            return frames
        self._filled += size
        if self._filled < len(self._frame):
            return []
        whole, self._frame = self._frame, None
        self._spares.keep(whole)
        _, kind, flags, channel = HEAD.unpack_from(whole)
        return [Frame(kind, flags, channel, memoryview(whole)[HEAD_BYTES:])]

    def _begins(self, have: bytearray | memoryview, total: int) -> bool:
        """Whether room was reserved for a frame of which this is here."""
        size = len(have)
        if not size < total <= RESERVED_TIMES * size or not self.may_reserve(total):
            return False
        self._frame, self._filled = self._spares.take(total), size
        self._frame[:size] = have
        return True
