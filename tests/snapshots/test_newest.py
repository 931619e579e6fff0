"""B12: which snapshot is the newest, without reading them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardlog.snapshots.archive import Archive
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.failures import Damaged
from shardlog.snapshots.manifest import Manifest

SHARD = "orders"


class CountingDestination(Destination):
    """Counts the objects that are read whole."""

    reads = 0

    def get(self, name: str) -> bytes:
        self.reads += 1
        return super().get(name)


def put(archive: Archive, id_: str, created_ms: int, node: str | None = None) -> Manifest:
    made = Manifest(id_, SHARD, node, created_ms, 0, 0, 0, (), (), ())
    archive.destination.put(archive.manifest_name(id_), made.to_bytes())
    return made


def begun(day: int) -> str:
    return f"202601{day:02d}T000000.000Z-0123abcd"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(CountingDestination(f"file://{tmp_path}"), SHARD)


def reads(archive: Archive) -> int:
    assert isinstance(archive.destination, CountingDestination)
    return archive.destination.reads


def test_B12_older_manifests_are_not_read(archive: Archive):
    for day in range(1, 21):
        put(archive, begun(day), day)
    newest = put(archive, begun(21), 21)
    assert archive.newest() == newest
    assert reads(archive) == 1
    put(archive, begun(22), 22, node="a")
    assert archive.newest() == newest
    assert reads(archive) == 3


def test_names_that_somebody_chose_tell_nothing(archive: Archive):
    put(archive, begun(1), 1)
    put(archive, "aaa", 5)
    chosen = put(archive, "mine", 9)
    put(archive, begun(2), 7)
    assert archive.newest() == chosen


def test_of_nodes_alone_the_last(archive: Archive):
    put(archive, begun(1), 1, node="b")
    last = put(archive, begun(2), 2, node="a")
    assert archive.newest() == last


def test_one_that_is_damaged_and_may_be_newer_is_told(archive: Archive):
    put(archive, begun(1), 1)
    archive.destination.put(archive.manifest_name(begun(2)), b"{")
    with pytest.raises(Damaged, match="takes it away"):
        archive.newest()
    newest = put(archive, begun(3), 1_800_000_000_000)
    assert archive.newest() == newest
