"""Columns of strings of one length take another way through `struct`, to the same strings."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.transport.column import EVEN_MAX, EVEN_MIN, RUN, Column, ends_in, packed_ends, u32s
from shardlog.transport.failures import MalformedBatch


def column(strings: list[bytes]) -> Column:
    offsets = memoryview(packed_ends(strings))
    return Column(ends_in(offsets, len(strings)), offsets, memoryview(b"".join(strings)))


def check(strings: list[bytes]) -> Column:
    found = column(strings)
    assert list(found.each()) == strings
    assert found.all() == strings
    assert [found.at(index) for index in range(len(strings))] == strings
    ends = [0]
    for each in strings:
        ends.append(ends[-1] + len(each))
    assert list(found.ends) == ends
    assert bytes(found.offsets) == struct.pack(f"<{len(ends)}I", *ends)
    return found


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=20))
def test_strings_of_any_length(strings: list[bytes]):
    check(strings)


@pytest.mark.parametrize(
    "count", [EVEN_MIN, EVEN_MIN + 1, RUN - 1, RUN, RUN + 1, 3 * RUN, 3 * RUN + 7, 5000]
)
@pytest.mark.parametrize("length", [1, 3, 8, 128])
def test_strings_of_one_length(count: int, length: int):
    strings = [number.to_bytes(length, "big") for number in range(min(count, 200))]
    found = check([strings[number % len(strings)] for number in range(count)])
    assert isinstance(found.ends, range)


def test_one_that_differs_is_enough():
    strings = [b"four"] * 1000
    for at in (0, 1, 500, 999):
        check([*strings[:at], b"three", *strings[at + 1 :]])
        check([*strings[:at], b"", *strings[at + 1 :]])
    both = [b"four"] * 500 + [b"five5", b"six"] + [b"four"] * 500
    assert not isinstance(check(both).ends, range), "as long as if all had one length"


@pytest.mark.parametrize("count", [0, 1, EVEN_MIN - 1])
def test_few_strings_are_not_worth_it(count: int):
    assert not isinstance(check([b"one"] * count).ends, range)


def test_strings_without_a_byte():
    assert not isinstance(check([b""] * 300).ends, range)


def test_more_than_are_kept_for_comparison():
    assert not isinstance(check([b"x"] * (EVEN_MAX + 1)).ends, range)
    assert isinstance(check([b"x"] * EVEN_MAX).ends, range)


def test_ends_beyond_what_can_be_told():
    class Long(bytes):
        def __len__(self) -> int:
            return 1 << 20

    assert packed_ends([Long()] * 4095)[-4:] == u32s([4095 << 20])
    with pytest.raises(OverflowError):
        packed_ends([Long()] * 4096)


@pytest.mark.parametrize("ends", [(1, 4, 8), (0, 4, 2), (4, 4, 8), (0, 8, 4, 12), (0, 4, 12, 8)])
def test_what_are_no_ends(ends: tuple[int, ...]):
    with pytest.raises(MalformedBatch, match="must start with 0"):
        ends_in(memoryview(struct.pack(f"<{len(ends)}I", *ends)), len(ends) - 1)


def test_ends_at_the_edge_of_a_u32_are_those_that_stand_there():
    last = (1 << 32) - 1
    for ends in ((0, last), (0, last // 3, 2 * (last // 3), last)):
        packed = memoryview(struct.pack(f"<{len(ends)}I", *ends))
        assert list(ends_in(packed, len(ends) - 1)) == list(ends)
