"""Byte strings one behind the other, with the ends of each: a column of a batch.

Records of one length are common, and then nothing has to be done for each of them to know where it
ends: the ends are those of any column of that length, compared as bytes, and the values come out of
`struct` by the hundreds.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, islice, pairwise
from operator import gt
from typing import NamedTuple

from shardlog.transport.failures import MalformedBatch

EVEN_MIN, EVEN_MAX = 32, 1 << 16
"""Of so many strings of one length the ends are kept for comparison, for some lengths."""
RUN = 256
"""So many of one length are taken out at once."""
_END = struct.Struct("<I")

assert array("I").itemsize == 4, "u32 columns are made with array('I')"


class Column(NamedTuple):
    """`offsets` are the ends as they stand, for Arrow; `ends` is a range if all lengths are one."""

    ends: Sequence[int]
    offsets: memoryview
    data: memoryview

    def at(self, index: int) -> bytes:
        return bytes(self.data[self.ends[index] : self.ends[index + 1]])

    def each(self) -> Iterator[bytes]:
        """Made when it is asked for, or some before."""
        if isinstance(self.ends, range):
            return _even_strings(self.data, self.ends.step)
        ends = self.ends
        return map(bytes(self.data).__getitem__, map(slice, ends, islice(ends, 1, None)))

    def all(self) -> list[bytes]:
        if isinstance(self.ends, range):
            return list(_even_strings(self.data, self.ends.step))
        data = bytes(self.data)
        return [data[start:end] for start, end in pairwise(self.ends)]


def u32s(numbers: Iterable[int]) -> bytes:
    made = array("I", numbers)
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


def packed_ends(strings: Sequence[bytes]) -> bytes:
    """As `ends_in` reads them; `OverflowError` if a u32 cannot tell them."""
    lengths, count = list(map(len, strings)), len(strings)
    if EVEN_MIN <= count <= EVEN_MAX:
        length = lengths[0]
        if 0 < length * count < 1 << 32 and lengths.count(length) == count:
            return _even_ends(length, 1 << count.bit_length())[: 4 * (count + 1)]
    return u32s(accumulate(lengths, initial=0))


def ends_in(offsets: memoryview, count: int) -> Sequence[int]:
    """The ends of `count` strings, and a 0 before them; `MalformedBatch` if they cannot be that."""
    if EVEN_MIN <= count <= EVEN_MAX:
        (length,), (last,) = _END.unpack_from(offsets, 4), _END.unpack_from(offsets, 4 * count)
        if length and last == length * count:
            known = _even_ends(length, 1 << count.bit_length())
            if known[: len(offsets)] == bytes(offsets):
                return range(0, last + 1, length)
    if count > EVEN_MAX:
        many = _numbers(offsets)
        falling = any(map(gt, many, islice(many, 1, None)))
        ends: Sequence[int] = many
    else:
        few = struct.unpack(f"<{count + 1}I", offsets)
        ends, falling = few, list(few) != sorted(few)
    if ends[0] or falling:
        raise MalformedBatch("ends must start with 0 and never fall")
    return ends


def _numbers(packed: memoryview) -> array[int]:
    """In four bytes each: as objects of Python they would take ten times that."""
    numbers = array("I", packed.tobytes())
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


@lru_cache(maxsize=16)
def _even_ends(length: int, count: int) -> bytes:
    """Those that a u32 can tell."""
    return u32s(range(0, min(length * count, (1 << 32) - 1) + 1, length))


def _even_strings(data: memoryview, length: int) -> Iterator[bytes]:
    runs, rest = divmod(len(data), length * RUN)
    whole = len(data) - rest
    ones = chain.from_iterable(_strings(length, 1).iter_unpack(data[whole:]))
    if not runs:
        return ones
    return chain(chain.from_iterable(_strings(length, RUN).iter_unpack(data[:whole])), ones)


@lru_cache(maxsize=32)
def _strings(length: int, count: int) -> struct.Struct:
    return struct.Struct(f"{length}s" * count)
