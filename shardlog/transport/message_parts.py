"""Bounds how many messages a message holds, before a parser makes an object of each.

A message within another takes two bytes on the wire and a hundred in memory.  So where a stranger
sends a list of them, they are counted first, by walking over the tags and lengths alone.
"""

from __future__ import annotations

from shardlog.transport.failures import MalformedMessage

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10


def require_parts(data: bytes, path: tuple[int, ...], parts_max: int, fields_max: int) -> None:
    """Raise `MalformedMessage` for too many parts, too many fields, or what is no message.

    Parts are the messages in field `path[0]` of `data`, those in field `path[1]` of these, and so
    on; fields are those of all of these but the last.  What is so short that it cannot hold as many
    is not walked over.
    """
    if len(data) > 2 * min(parts_max, fields_max):
        _Walk(data, path, parts_max, fields_max).over(0, len(data), 0)


class _Walk:
    __slots__ = ("_data", "_fields_left", "_parts_left", "_parts_max", "_path")

    def __init__(self, data: bytes, path: tuple[int, ...], parts_max: int, fields_max: int) -> None:
        self._data = data
        self._path = path
        self._parts_max = self._parts_left = parts_max
        self._fields_left = fields_max

    def over(self, at: int, end: int, level: int) -> None:
        """The fields in `data[at:end]`, a message `level` steps down the path."""
        data = self._data
        wanted = self._path[level] << 3 | _BYTES
        while at < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise MalformedMessage("too many fields in one message")
            tag, at = (data[at], at + 1) if data[at] < 128 else self._varint(at, end)
            kind = tag & 7
            if kind == _BYTES:
                if at < end and data[at] < 128:
                    length, at = data[at], at + 1
                else:
                    length, at = self._varint(at, end)
                after = at + length
                if tag == wanted:
                    self._parts_left -= 1
                    if self._parts_left < 0:
                        raise MalformedMessage(f"more than {self._parts_max} parts in one message")
                    if level + 1 < len(self._path) and after <= end:
                        self.over(at, after, level + 1)
                at = after
            elif kind == _VARINT:
                _, at = self._varint(at, end)
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                raise MalformedMessage(f"a field of wire type {kind}")
        if at != end:
            raise MalformedMessage("a field is cut")

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(_VARINT_BYTES_MAX):
            if at >= end:
                break
            byte = self._data[at]
            at += 1
            value |= (byte & 0x7F) << 7 * shift
            if byte < 128:
                return value, at
        raise MalformedMessage("a field is cut")
