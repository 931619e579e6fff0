"""A restored shard has the same records, each once, however often the restore was interrupted."""

import asyncio
from pathlib import Path

import pytest
from client.cluster import SHARD, Story, story

from shardlog.client import Client, Compression
from shardlog.protocol.coordination import Promote, TrimShard
from shardlog.snapshots.creating import create
from shardlog.snapshots.failures import NotPossible
from shardlog.snapshots.restoring import Restored, restore
from snapshots.logs import SEGMENT_BYTES, archive_at, fill, log_of

AGAIN = "again"


async def fill_variously(s: Story) -> None:
    """Sessions, an election, compressed batches: all that takes offsets or changes bodies."""
    await fill(s.client, 30)
    other = next(name for name in s.cluster.names if name != s.leader)
    await s.cluster.coordinator.command(SHARD, Promote(other))
    await s.cluster.leader(SHARD, s.leader)
    for compression in (Compression.ZSTD, Compression.LZ4):
        async with s.client.producer(SHARD, compression=compression) as producer:
            await producer.append_many([b"%d" % n + bytes(100) for n in range(500)])
    await fill(s.client, 10)


def test_records_keys_headers_times_and_offsets_are_the_same(tmp_path: Path, place: str):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill_variously(s)
        archive = archive_at(place)
        made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        await s.cluster.create(AGAIN)
        restored = await restore(s.client, archive, made, AGAIN)
        assert restored == Restored(made.records, 0, 0)
        assert await log_of(s.client, AGAIN) == await log_of(s.client)
        again = await restore(s.client, archive, made, AGAIN)
        assert again == Restored(made.records, made.records, 0)
        assert await log_of(s.client, AGAIN) == await log_of(s.client)


def test_it_goes_on_where_it_was_interrupted(tmp_path: Path):
    """At many places, with requests under way; each run has a client and connections of its own."""

    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill_variously(s)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        await s.cluster.create(AGAIN)
        interrupted = 0
        for number in range(1, 30):
            async with Client(s.cluster.url) as client:
                working = asyncio.current_task()

                def looked(restored: Restored, most: int = 100 * number) -> None:
                    if restored.records > most:
                        raise InterruptedError

                try:
                    await restore(client, archive, made, AGAIN, on_progress=looked)
                    break
                except InterruptedError:
                    interrupted += 1
                assert working is not None
        assert interrupted > 3
        # On a busy machine there may be an election in between, which moves offsets.
        theirs, ours = await log_of(s.client), await log_of(s.client, AGAIN)
        assert [each[1:] for each in ours] == [each[1:] for each in theirs]


def test_two_at_once_append_everything_once(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 40)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        await s.cluster.create(AGAIN)
        async with Client(s.cluster.url) as other:
            await asyncio.gather(
                restore(s.client, archive, made, AGAIN), restore(other, archive, made, AGAIN)
            )
        theirs, ours = await log_of(s.client), await log_of(s.client, AGAIN)
        assert [each[1:] for each in ours] == [each[1:] for each in theirs]


def test_an_election_in_between_moves_offsets_and_nothing_else(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 80)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        leader = await s.cluster.create(AGAIN)
        other = next(name for name in s.cluster.names if name != leader)
        elected: list[asyncio.Task[object]] = []

        def looked(restored: Restored) -> None:
            if restored.records > made.records // 4 and not elected:
                command = s.cluster.coordinator.command(AGAIN, Promote(other))
                elected.append(asyncio.ensure_future(command))

        await restore(s.client, archive, made, AGAIN, on_progress=looked)
        await elected[0]
        theirs, ours = await log_of(s.client), await log_of(s.client, AGAIN)
        assert [each[1:] for each in ours] == [each[1:] for each in theirs]


def test_a_log_that_does_not_begin_at_its_beginning(tmp_path: Path):
    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 30)
        replica = s.cluster.nodes["a"].replicas[SHARD].replica
        cut = replica.log.covering(replica.log.end // 2)
        assert cut is not None
        while replica.log.first != cut.base:
            await s.cluster.coordinator.command(SHARD, TrimShard(cut.base))
            await asyncio.sleep(0.01)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        made = await create(s.client, archive)
        await s.cluster.create(AGAIN)
        restored = await restore(s.client, archive, made, AGAIN)
        assert restored.moved == restored.records == made.records
        from_first = [each async for each in s.client.read(SHARD, from_first_kept=True)]
        ours = await log_of(s.client, AGAIN)
        assert [each[1:] for each in ours] == [each[1:] for each in from_first]


def test_a_shard_that_is_in_use_is_left_alone(tmp_path: Path):
    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 5)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        made = await create(s.client, archive)
        await s.cluster.create(AGAIN)
        await fill(s.client, 3, shard=AGAIN, each=7)
        before = await log_of(s.client, AGAIN)
        with pytest.raises(NotPossible, match="not those of this snapshot"):
            await restore(s.client, archive, made, AGAIN)
        async with s.client.producer(AGAIN) as producer:
            await producer.append(b"x")
        with pytest.raises(NotPossible, match="do not come from a restore"):
            await restore(s.client, archive, made, AGAIN)
        assert (await log_of(s.client, AGAIN))[:-1] == before
