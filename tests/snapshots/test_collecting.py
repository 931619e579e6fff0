"""Segments go when nobody names them, and never those that somebody is about to name."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from client.cluster import SHARD, Story, story

from shardlog.snapshots import marks
from shardlog.snapshots.collecting import collect, delete, surplus
from shardlog.snapshots.creating import Progress, create
from shardlog.snapshots.failures import DestinationBusy
from snapshots.logs import SEGMENT_BYTES, archive_at, assert_sound, fill, log_of, records_of


def test_what_others_name_is_kept(tmp_path: Path, place: str):
    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        archive = archive_at(place)
        made = []
        for _ in range(4):
            await fill(s.client, 30)
            made.append(await create(s.client, archive, segment_bytes=SEGMENT_BYTES))
        assert surplus(made, 2) == [made[0].id, made[1].id]
        assert surplus(made, 1, made[1].created_ms) == [made[0].id]
        assert surplus(made, 0, made[3].created_ms + 1) == [each.id for each in made]
        collected = delete(archive, [made[0].id, made[1].id])
        assert archive.ids() == [made[2].id, made[3].id]
        assert collected.why_not is None
        for manifest in made[2:]:
            assert_sound(archive, manifest)
        assert records_of(archive, made[3]) == await log_of(s.client)
        named = {segment.name for each in made[2:] for segment in each.segments}
        assert {piece.name for piece in archive.pieces()} == named
        delete(archive, archive.ids())
        assert archive.pieces() == []
        assert marks.marks(archive) == []


def test_retention_counts_each_replica_apart(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        archive = archive_at(f"file://{tmp_path}/snapshots")
        await fill(s.client, 3)
        made = [await create(s.client, archive, node=node) for node in (None, "a", "a", "b")]
        assert surplus(made, 1) == [made[1].id]


def test_nothing_is_collected_while_somebody_creates(tmp_path: Path):
    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        archive = archive_at(f"file://{tmp_path}/snapshots")
        await fill(s.client, 60)
        found: list[str | None] = []

        def looked(progress: Progress) -> None:
            if progress.written_segments >= 2:
                found.append(collect(archive).why_not)

        progress = Progress(on_change=looked)
        made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES, progress=progress)
        assert set(found) == {"a snapshot is being created"}
        assert_sound(archive, made)


def test_a_creator_waits_for_a_collector(tmp_path: Path):
    archive = archive_at(f"file://{tmp_path}/snapshots")
    with marks.collecting(archive, "one") as mark:
        assert mark is not None
        refused = pytest.raises(DestinationBusy, match="segments are being collected")
        with refused, marks.creating(archive, "two", wait_s=0.3):
            pass
    with marks.creating(archive, "two", wait_s=0.3):
        pass
    assert marks.marks(archive) == []


def age(tmp_path: Path, name: str) -> None:
    path = tmp_path / "snapshots" / name
    then = datetime.now(UTC).timestamp() - marks.STALE_S - 60
    os.utime(path, (then, then))


def test_what_the_dead_left_is_removed(tmp_path: Path):
    archive = archive_at(f"file://{tmp_path}/snapshots")
    for name in ("creating-dead", "collecting-dead"):
        archive.destination.put(f"{SHARD}/running/{name}.json", b"{}")
        age(tmp_path, f"{SHARD}/running/{name}.json")
    with marks.collecting(archive, "one") as mark:
        assert mark is not None
    with marks.creating(archive, "two", wait_s=0.3):
        assert len(marks.marks(archive)) == 1


def test_a_creator_that_was_taken_for_dead_takes_its_snapshot_back(tmp_path: Path):
    """It slept for so long that its segments were collected before its manifest came."""

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        archive = archive_at(f"file://{tmp_path}/snapshots")
        await fill(s.client, 60)

        def looked(progress: Progress) -> None:
            if progress.written_segments >= 2 and marks.marks(archive):
                (mark,) = marks.marks(archive)
                age(tmp_path, mark.name)
                assert collect(archive).segments >= 2

        progress = Progress(on_change=looked)
        with pytest.raises(DestinationBusy, match="taken for dead"):
            await create(s.client, archive, segment_bytes=SEGMENT_BYTES, progress=progress)
        assert archive.ids() == []
        made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        assert_sound(archive, made)


def test_a_damaged_manifest_keeps_everything(tmp_path: Path):
    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        archive = archive_at(f"file://{tmp_path}/snapshots")
        await fill(s.client, 10)
        one = await create(s.client, archive)
        await fill(s.client, 10)
        two = await create(s.client, archive)
        path = tmp_path / "snapshots" / archive.manifest_name(two.id)
        path.write_bytes(path.read_bytes()[:-50])
        collected = delete(archive, [one.id])
        assert collected.segments == 0
        assert "is damaged" in str(collected.why_not)


def test_who_may_be_taken_for_dead_collects_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Somebody may have removed its mark, and create by now."""

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        archive = archive_at(f"file://{tmp_path}/snapshots")
        await fill(s.client, 10)
        archive.delete_manifest((await create(s.client, archive)).id)
        with monkeypatch.context() as slow:
            slow.setattr(marks, "STALE_S", 0.0)
            collected = collect(archive)
        assert (collected.segments, collected.why_not) == (0, "it took too long to go on safely")
        assert archive.pieces()
        assert collect(archive).segments == 1


def test_a_mark_that_was_removed_or_may_have_been_is_not_put_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    archive = archive_at(f"file://{tmp_path}/snapshots")
    with marks.creating(archive, "one") as mark:
        age(tmp_path, mark.name)
        (old,) = marks.marks(archive)
        with monkeypatch.context() as slow:
            slow.setattr(marks, "STALE_S", 0.0)
            mark.refresh()
        assert marks.marks(archive) == [old]
        mark.refresh()
        assert marks.marks(archive) != [old]
        archive.destination.delete(mark.name)
        mark.refresh()
        assert not mark.is_there()
