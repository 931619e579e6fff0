"""A snapshot is a cut of the log, whatever goes on meanwhile, and copies nothing twice."""

import asyncio
import errno
import os
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from client.cluster import SHARD, Story, story, until

from shardlog.client.failures import InvalidArgument, NoSuchShard
from shardlog.protocol.coordination import Promote, TrimShard
from shardlog.snapshots.creating import Progress, create
from shardlog.snapshots.failures import DestinationUnavailable, NotPossible
from shardlog.snapshots.local_files import LocalFile, LocalFiles
from shardlog.snapshots.reading import Wanted
from shardlog.snapshots.reuse import Known
from shardlog.snapshots.rooms import ROOM_BYTES
from snapshots.logs import SEGMENT_BYTES, archive_at, assert_sound, fill, log_of, records_of


def test_all_that_is_committed_is_in_it_and_nothing_is_copied_twice(tmp_path: Path, place: str):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 100)
        archive = archive_at(place)
        first, again, more = Progress(), Progress(), Progress()
        one = await create(s.client, archive, segment_bytes=SEGMENT_BYTES, progress=first)
        assert_sound(archive, one)
        assert records_of(archive, one) == await log_of(s.client)
        assert (one.first, one.end) == (0, await s.client.end(SHARD))
        assert one.commit == one.end
        assert one.history[0].first == 0
        assert {each.session for each in one.sessions} == {
            each.id for each in s.cluster.nodes[s.leader].replicas[SHARD].replica.sessions.at_rest()
        }
        assert first.written_segments == len(one.segments) > 5
        assert first.written_bytes == one.size

        two = await create(s.client, archive, segment_bytes=SEGMENT_BYTES, progress=again)
        assert (again.written_bytes, again.read_bytes) == (0, 0)
        assert two.segments == one.segments
        assert two.sessions == one.sessions

        await fill(s.client, 10)
        three = await create(s.client, archive, segment_bytes=SEGMENT_BYTES, progress=more)
        assert_sound(archive, three)
        assert records_of(archive, three) == await log_of(s.client)
        assert more.written_bytes < three.size
        assert archive.ids() == [one.id, two.id, three.id]
        assert archive.newest() == three


def test_what_was_large_enough_is_never_read_again(tmp_path: Path):
    """Only a last segment that is short is read again, together with what follows."""

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            await producer.append_many([bytes(1000)] * 3000)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        one = await create(s.client, archive, segment_bytes=1 << 20)
        assert [segment.size >= 1 << 20 for segment in one.segments][:-1] == [True, True]
        async with s.client.producer(SHARD) as producer:
            await producer.append(b"one more")
        more = Progress()
        two = await create(s.client, archive, segment_bytes=1 << 20, progress=more)
        assert two.segments[:2] == one.segments[:2]
        assert more.read_bytes < 1 << 20
        assert_sound(archive, two)


def _more(found: list[int], count: int) -> bool:
    return len(found) > count


def test_writes_go_on_meanwhile(tmp_path: Path, place: str):
    """What was acknowledged before it began is in it, and it is a prefix of the log."""

    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 50)
        acknowledged: list[int] = []
        stop = asyncio.Event()

        async def appends() -> None:
            async with s.client.producer(SHARD) as producer:
                while not stop.is_set():
                    acknowledged.append(await producer.append(b"%d" % len(acknowledged)))

        appending = asyncio.create_task(appends())
        await until(lambda: len(acknowledged) > 20)
        archive = archive_at(place)
        for _ in range(3):
            before = acknowledged[-1]
            made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
            assert made.end > before
            assert records_of(archive, made) == await log_of(s.client, end=made.end)
            assert_sound(archive, made)
            await until(partial(_more, acknowledged, len(acknowledged) + 20))
        stop.set()
        await appending


@pytest.mark.parametrize("how", ["killed", "handed over"])
def test_the_leader_changes_meanwhile(tmp_path: Path, how: str):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 300)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        progress = Progress()
        halfway = asyncio.Event()

        def looked(it: Progress) -> None:
            if it.at > it.end // 4:
                halfway.set()

        progress.on_change = looked
        creating = asyncio.create_task(
            create(s.client, archive, segment_bytes=SEGMENT_BYTES, progress=progress)
        )
        await halfway.wait()
        if how == "killed":
            await s.cluster.stop(s.leader)
        else:
            other = next(name for name in s.cluster.names if name != s.leader)
            await s.cluster.coordinator.command(SHARD, Promote(other))
        made = await creating
        assert_sound(archive, made)
        assert records_of(archive, made) == await log_of(s.client, end=made.end)


def test_each_replica_has_a_view_of_its_own_and_equal_ones_are_shared(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 60)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        await until(lambda: len({s.cluster.end(name) for name in s.cluster.names}) == 1)
        made = {}
        for name in s.cluster.names:
            progress = Progress()
            made[name] = await create(
                s.client, archive, node=name, segment_bytes=SEGMENT_BYTES, progress=progress
            )
            assert made[name].node == name
            assert progress.read_bytes > 0
            assert_sound(archive, made[name])
        shortest = min(made.values(), key=lambda each: each.end)
        for each in made.values():
            read = records_of(archive, each, Wanted(end=shortest.end))
            within = [record for record in read if record.offset < shortest.end]
            assert within == records_of(archive, shortest)
        count = sum(len(each.segments) for each in made.values())
        assert len(archive.pieces()) < count


def test_a_node_that_is_not_there(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        archive = archive_at(f"file://{tmp_path}/snapshots")
        with pytest.raises(InvalidArgument, match="there is no node 'z' of 'orders': a, b, c"):
            await create(s.client, archive, node="z")
        assert archive.ids() == []


def test_an_end_in_the_middle_and_one_out_of_range(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 30)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        made = await create(s.client, archive, end=100, segment_bytes=SEGMENT_BYTES)
        assert 100 <= made.end < 120
        assert made.commit > made.end
        assert records_of(archive, made) == await log_of(s.client, end=made.end)
        with pytest.raises(NotPossible, match="offset 999999 is out of range"):
            await create(s.client, archive, end=999_999)
        with pytest.raises(NoSuchShard, match="there is no shard 'nothing'"):
            await create(s.client, archive_at(f"file://{tmp_path}/snapshots", "nothing"))
        assert archive.ids() == [made.id]


def test_an_empty_log(tmp_path: Path):
    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        archive = archive_at(f"file://{tmp_path}/snapshots")
        made = await create(s.client, archive)
        assert_sound(archive, made)
        assert (made.records, records_of(archive, made)) == (0, [])


def test_a_shard_that_was_made_anew_under_the_same_name(tmp_path: Path):
    """What an earlier one left at the destination is not taken for its own."""

    async def filled(s: Story) -> None:
        await fill(s.client, 40)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        assert records_of(archive, made) == await log_of(s.client)
        assert_sound(archive, made)

    story(tmp_path / "one", names="a")(filled)
    story(tmp_path / "two", names="a")(filled)
    archive = archive_at(f"file://{tmp_path}/snapshots")
    one, two = archive.manifests()
    assert not {each.name for each in one.segments} & {each.name for each in two.segments}
    assert_sound(archive, one)


def test_segments_of_two_logs_under_one_name_are_not_chained(tmp_path: Path):
    """Logs of the same shape have segments between the same offsets; only the parents differ."""

    async def filled(s: Story) -> None:
        await fill(s.client, 200)
        await create(s.client, archive, segment_bytes=SEGMENT_BYTES)

    archive = archive_at(f"file://{tmp_path}/snapshots")
    story(tmp_path / "one", names="a")(filled)
    story(tmp_path / "two", names="a")(filled)
    manifests = list(archive.manifests())
    one, two = ([(each.base, each.end) for each in made.segments] for made in manifests)
    assert len(one) > 10
    assert one == two
    chain = Known(archive, manifests, SEGMENT_BYTES).chain(manifests[0].first, manifests[0].end)
    assert len(chain) >= len(one) - 1
    assert all(later.parent == earlier.head for earlier, later in pairwise(chain))


def test_sessions_are_told_of_segments_that_no_manifest_names(tmp_path: Path):
    """As an attempt leaves them that was interrupted: their own indexes tell."""

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 1)
        await fill(s.client, 100)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        one = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        archive.delete_manifest(one.id)
        progress = Progress()
        two = await create(s.client, archive, segment_bytes=SEGMENT_BYTES, progress=progress)
        assert progress.reused_segments > 2
        assert len(one.sessions) == 2
        assert two.sessions == one.sessions


def test_a_name_that_was_chosen_is_of_one_snapshot(tmp_path: Path):
    """Whoever asks again gets it; but not for the copy of another node."""

    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 5)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        one = await create(s.client, archive, node="b", id_="mine")
        await fill(s.client, 5)
        assert await create(s.client, archive, node="b", id_="mine") == one
        for node in ("a", None):
            with pytest.raises(NotPossible, match="is there, and is of b"):
                await create(s.client, archive, node=node, id_="mine")
        assert archive.ids() == ["mine"]


def test_a_log_that_was_trimmed(tmp_path: Path):
    """It begins where the log does, or with the segment that holds that place."""

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 40)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        whole = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        replica = s.cluster.nodes["a"].replicas[SHARD].replica
        cut = replica.log.covering(whole.end // 2)
        assert cut is not None
        while replica.log.first != cut.base:  # only what is applied is dropped
            await s.cluster.coordinator.command(SHARD, TrimShard(cut.base))
            await asyncio.sleep(0.01)
        shared = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        assert 0 < shared.first <= replica.log.first
        assert set(shared.segments) <= set(whole.segments)
        assert_sound(archive, shared)
        alone = archive_at(f"file://{tmp_path}/elsewhere")
        made = await create(s.client, alone, segment_bytes=SEGMENT_BYTES)
        assert made.first == replica.log.first
        assert_sound(alone, made)


def test_long_segments_are_written_while_they_are_gathered(tmp_path: Path, place: str):
    """Longer than a room, and the next time, compared with what is there, not at all."""

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            await producer.append_many([os.urandom(1000) for _ in range(6000)])
        archive = archive_at(place)
        one = await create(s.client, archive, segment_bytes=ROOM_BYTES + ROOM_BYTES // 2)
        assert [segment.size > ROOM_BYTES for segment in one.segments] == [True, True]
        assert_sound(archive, one)
        assert records_of(archive, one) == await log_of(s.client)
        same = Progress()
        two = await create(
            s.client, archive, node="a", segment_bytes=ROOM_BYTES + ROOM_BYTES // 2, progress=same
        )
        assert two.segments == one.segments
        assert (same.written_bytes, same.reused_bytes) == (0, one.size)
        gone = one.segments[0]
        archive.destination.delete(archive.segment_path(gone.name))
        again = Progress()
        await create(s.client, archive, node="a", progress=again)
        assert again.written_bytes == gone.size
        assert_sound(archive, one)


def test_a_full_disk_leaves_nothing_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(fd: int, data: memoryview, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 100)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        with monkeypatch.context() as patched:
            patched.setattr("shardlog.snapshots.local_files.os.pwrite", full)
            with pytest.raises(DestinationUnavailable, match="space"):
                await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        assert archive.ids() == []
        assert [each for each in tmp_path.glob("snapshots/**/*") if each.is_file()] == []
        assert_sound(archive, await create(s.client, archive, segment_bytes=SEGMENT_BYTES))


def test_one_that_is_cancelled_leaves_nothing_unfinished(tmp_path: Path):
    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 300)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        halfway = asyncio.Event()

        def looked(it: Progress) -> None:
            if it.at > it.end // 3:
                halfway.set()

        creating = asyncio.create_task(
            create(
                s.client, archive, segment_bytes=SEGMENT_BYTES, progress=Progress(on_change=looked)
            )
        )
        await halfway.wait()
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        left = [each.name for each in tmp_path.glob("snapshots/*/segments/*")]
        assert [name for name in left if "#" in name] == []
        assert_sound(archive, await create(s.client, archive, segment_bytes=SEGMENT_BYTES))


def test_one_that_is_cancelled_while_a_file_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    begin, begun, may_go_on = LocalFiles.begin, threading.Event(), threading.Event()

    def held(files: LocalFiles, name: str) -> LocalFile:
        if "/segments/" in name:
            begun.set()
            may_go_on.wait(60)
        return begin(files, name)

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 20)
        archive = archive_at(f"file://{tmp_path}/snapshots")
        monkeypatch.setattr(LocalFiles, "begin", held)
        creating = asyncio.create_task(create(s.client, archive, segment_bytes=SEGMENT_BYTES))
        await until(begun.is_set)
        creating.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert [each.name for each in tmp_path.glob("snapshots/**/*") if "#" in each.name] == []
