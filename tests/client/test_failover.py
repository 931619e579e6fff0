"""A client follows the leader by itself, with or without a word from the old one."""

import asyncio
from pathlib import Path

import pytest

from client.cluster import SHARD, Story, story, until
from shardlog.client import Client, Record
from shardlog.client.failures import DeadlineExceeded, NoSuchShard
from shardlog.protocol.coordination import Promote


async def appends(s: Story, stop: asyncio.Event) -> list[int]:
    """One after the other, until told to stop."""
    offsets: list[int] = []
    async with s.client.producer(SHARD) as producer:
        while not stop.is_set():
            offsets.append(await producer.append(b"%d" % len(offsets)))
    return offsets


async def tailed(s: Story, count: int) -> list[Record]:
    found: list[Record] = []
    async for record in s.client.tail(SHARD):
        found.append(record)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("by_addresses", [False, True])
def test_a_silent_cut_is_noticed_and_a_tail_goes_on(tmp_path: Path, by_addresses: bool):
    """Nothing is reset: the connection to the old leader stays open, and nothing comes of it."""

    @story(tmp_path, proxied=True, by_addresses=by_addresses)
    async def _(s: Story) -> None:
        stop = asyncio.Event()
        appending = asyncio.create_task(appends(s, stop))
        tailing = asyncio.create_task(tailed(s, 200))
        await until(lambda: s.cluster.end(s.leader) > 50)
        s.proxies[s.leader].silence()
        await s.cluster.stop(s.leader)
        new = await s.cluster.leader(SHARD, s.leader)
        end = s.cluster.end(new)
        await until(lambda: s.cluster.end(new) > end + 200)
        stop.set()
        offsets = await appending
        records = await tailing
        assert [record.value for record in records] == [b"%d" % n for n in range(200)]
        assert [record.offset for record in records] == offsets[:200]
        values = [record.value for record in await s.records()]
        assert values == [b"%d" % n for n in range(len(offsets))]


def test_a_leadership_that_is_handed_over(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        stop = asyncio.Event()
        appending = asyncio.create_task(appends(s, stop))
        tailing = asyncio.create_task(tailed(s, 150))
        await until(lambda: s.cluster.end(s.leader) > 50)
        other = next(name for name in s.cluster.names if name != s.leader)
        await s.cluster.coordinator.command(SHARD, Promote(other))
        assert await s.cluster.leader(SHARD, s.leader) == other
        end = s.cluster.end(other)
        await until(lambda: s.cluster.end(other) > end + 150)
        stop.set()
        offsets = await appending
        assert [record.offset for record in await tailing] == offsets[:150]
        assert len(await s.records()) == len(offsets)


def test_the_directory_is_not_needed_while_nothing_changes(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            await producer.append(b"x")
            asked = s.cluster.asked
            for _ in range(50):
                await producer.append(b"x")
            await s.records()
            assert s.cluster.asked == asked


def test_a_directory_that_is_gone_is_done_without(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD)
        await producer.append(b"before")
        await s.cluster.stop_directory()
        await s.cluster.stop(s.leader)
        await producer.append(b"after")
        assert [record.value for record in await s.records()] == [b"before", b"after"]


def test_a_shard_that_does_not_exist(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        with pytest.raises(NoSuchShard, match="there is no shard 'other'"):
            await s.client.end("other")
        producer = s.client.producer("other")
        with pytest.raises(NoSuchShard):
            await producer.append(b"x")
        with pytest.raises(NoSuchShard):
            async for _ in s.client.read("other"):
                pass
        await producer.close()


def test_addresses_that_hold_no_such_shard_are_tried_until_the_deadline(tmp_path: Path):
    @story(tmp_path, by_addresses=True)
    async def _(s: Story) -> None:
        with pytest.raises(DeadlineExceeded, match="there is no shard 'other'") as told:
            await s.client.end("other", deadline_ms=1_000)
        assert isinstance(told.value.last, NoSuchShard)
        producer = s.client.producer("other", deadline_ms=1_000)
        with pytest.raises(DeadlineExceeded) as told:
            await producer.append(b"x")
        assert isinstance(told.value.last, NoSuchShard)
        assert not told.value.fate_unknown
        await producer.close()


def test_a_shard_that_comes_to_the_addresses_is_found(tmp_path: Path):
    @story(tmp_path, by_addresses=True)
    async def _(s: Story) -> None:
        async with s.client.producer("later") as producer:
            appending = asyncio.create_task(producer.append(b"patient"))
            await until(lambda: isinstance(producer._delivery._last, NoSuchShard))
            await s.cluster.create("later")
            assert await appending > 0
            assert [record.value async for record in s.client.read("later")] == [b"patient"]


def test_nobody_there_ends_with_the_deadline(unused_address: str):
    async def whole() -> None:
        for url in (f"http://{unused_address}", f"shardlog://{unused_address}"):
            async with Client(url) as client:
                with pytest.raises(DeadlineExceeded, match="300 ms") as told:
                    await client.end(SHARD, deadline_ms=300)
                assert told.value.last is not None
                assert not told.value.fate_unknown
                producer = client.producer(SHARD, deadline_ms=300)
                with pytest.raises(DeadlineExceeded) as told:
                    await producer.append(b"x")
                assert not told.value.fate_unknown
                await producer.flush()

    asyncio.run(whole())


def test_no_majority_ends_with_the_deadline(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, deadline_ms=700)
        await producer.append(b"x")
        for name in [name for name in s.cluster.names if name != s.leader]:
            await s.cluster.stop(name)
        with pytest.raises(DeadlineExceeded) as told:
            await producer.append(b"y")
        assert told.value.fate_unknown
        with pytest.raises(DeadlineExceeded):
            await s.client.end(SHARD, deadline_ms=500)
        await producer.close()
