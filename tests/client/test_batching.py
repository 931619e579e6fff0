"""Records become requests, and everyone is told."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.client.batching import (
    Gathering,
    Group,
    Piece,
    check_record,
    fail,
    pieces,
    record_bytes,
)
from shardlog.client.failures import Closed, InvalidRecord
from shardlog.client.records import Range
from shardlog.transport.batch import Batch
from shardlog.transport.compression import Compression


def within_a_loop(told: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await told()

    asyncio.run(whole())


def test_one_request_tells_records_and_groups():
    @within_a_loop
    async def _() -> None:
        loop = asyncio.get_running_loop()
        gathering = Gathering(5.0)
        first, last = loop.create_future(), loop.create_future()
        group = Group(loop.create_future(), 2)
        gathering.add(b"a", b"key", None, (), first)
        gathering.add_many(Piece([b"b", b"c"], 2), group)
        gathering.add(b"d", None, None, (), last)
        request = gathering.sealed(Compression.NONE)
        assert (request.count, request.expires_at) == (4, 5.0)
        assert Batch(request.body).values.all() == [b"a", b"b", b"c", b"d"]
        request.appended(100)
        assert (first.result(), last.result()) == (100, 103)
        assert not group.future.done()
        group.appended(50, 7)
        assert group.future.result() == [Range(50, 7), Range(101, 2)]
        assert Range(101, 2).end == 103


def test_a_failure_reaches_those_who_still_wait():
    @within_a_loop
    async def _() -> None:
        loop = asyncio.get_running_loop()
        waiting, gone = loop.create_future(), loop.create_future()
        group = Group(loop.create_future(), 1)
        gone.cancel()
        fail([waiting, gone, (group, 1)], Closed("closed"))
        for future in (waiting, group.future):
            with pytest.raises(Closed):
                await future
        group.appended(1, 1)


def test_timestamps_decide_what_goes_together():
    @within_a_loop
    async def _() -> None:
        future = asyncio.get_running_loop().create_future
        gathering = Gathering(0.0)
        assert gathering.takes(None)
        assert gathering.takes(7)
        gathering.add(b"", None, 1_000, (), future())
        assert not gathering.takes(None)
        assert gathering.takes(0)
        assert gathering.takes(999 + (1 << 32))
        assert not gathering.takes(1_000 + (1 << 32))
        gathering.add(b"", None, 0, (), future())
        assert not gathering.takes(1 << 32)
        plain = Gathering(0.0)
        plain.add(b"", None, None, (), future())
        assert not plain.takes(1)


def test_what_can_be_no_record_is_refused():
    assert record_bytes(b"value", b"key", [("name", b"x")]) == 5 + 4 + 3 + 4 + 1 + 6
    for value, key, headers in (
        ("text", None, []),
        (7, None, []),
        (b"", "key", []),
        (b"", None, [("n" * 65_536, b"")]),
    ):
        with pytest.raises(InvalidRecord):
            check_record(value, key, headers, None)  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=60), st.integers(-10, 200),
       st.integers(1, 100))  # fmt: skip
def test_pieces_hold_everything_in_order_and_no_more_than_fits(values, first, each):
    keys = [None if len(value) % 3 else value for value in values]
    sizes = [len(value) + len(key or b"") for value, key in zip(values, keys, strict=True)]
    made = pieces(Piece(values, sum(sizes), keys), first, each)
    assert [value for piece in made for value in piece.values] == values
    assert [key for piece in made for key in piece.keys or ()] == keys
    assert sum(piece.content_bytes for piece in made) == sum(sizes)
    for room, (held, held_bytes, *_) in zip([first] + [each] * len(made), made, strict=False):
        assert len(held) == 1 or held_bytes + 4 * len(held) <= room
