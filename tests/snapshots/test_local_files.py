"""Files of a destination: whole, durable and named last."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardlog.snapshots.destination import Destination
from shardlog.snapshots.failures import (
    DestinationRefused,
    DestinationUnavailable,
    ObjectExists,
)
from shardlog.snapshots.local_files import PIECE_BYTES


@pytest.fixture
def destination(tmp_path: Path) -> Destination:
    return Destination(f"file://{tmp_path}")


def files(top: Path) -> list[str]:
    return sorted(str(each.relative_to(top)) for each in top.rglob("*") if each.is_file())


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, 2 * PIECE_BYTES + 7])
def test_whatever_its_length_it_is_whole(destination: Destination, size: int) -> None:
    data = os.urandom(size)
    destination.put("shard/segments/one", memoryview(data))
    assert destination.get("shard/segments/one") == data
    assert [(each.name, each.size) for each in destination.list("shard/")] == [
        ("shard/segments/one", size)
    ]


def test_a_second_one_takes_the_place_of_the_first(
    destination: Destination, tmp_path: Path
) -> None:
    destination.put("shard/mark", b"first")
    destination.put("shard/mark", b"second")
    assert destination.get("shard/mark") == b"second"
    assert files(tmp_path) == ["shard/mark"]


def test_one_that_must_be_new_leaves_the_old_one(destination: Destination, tmp_path: Path) -> None:
    destination.put("shard/manifest", b"first", new=True)
    with pytest.raises(ObjectExists, match="shard/manifest exists"):
        destination.put("shard/manifest", b"second", new=True)
    assert destination.get("shard/manifest") == b"first"
    assert files(tmp_path) == ["shard/manifest"]


def test_what_cannot_be_synced_gets_no_name(
    destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(DestinationUnavailable, match="No space left"):
        destination.put("shard/segments/one", b"bytes")
    assert files(tmp_path) == []


def test_a_directory_in_the_way_is_told(destination: Destination, tmp_path: Path) -> None:
    (tmp_path / "shard" / "one").mkdir(parents=True)
    with pytest.raises(DestinationRefused, match="shard/one"):
        destination.put("shard/one", b"bytes")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DestinationRefused, match="file/one"):
        destination.put("file/one", b"bytes")
    assert files(tmp_path) == ["file"]


def test_a_directory_that_somebody_removed_is_made_again(
    destination: Destination, tmp_path: Path
) -> None:
    destination.put("shard/segments/one", b"bytes")
    destination.delete("shard/segments/one")
    (tmp_path / "shard" / "segments").rmdir()
    (tmp_path / "shard").rmdir()
    destination.put("shard/segments/two", b"bytes")
    assert files(tmp_path) == ["shard/segments/two"]


def test_what_a_dead_one_left_unfinished_is_not_listed(
    destination: Destination, tmp_path: Path
) -> None:
    destination.put("shard/segments/one", b"bytes")
    (tmp_path / "shard" / "segments" / "two#123456789012").write_bytes(b"by")
    assert [each.name for each in destination.list("shard/")] == ["shard/segments/one"]


def test_many_threads_make_the_same_directories(destination: Destination, tmp_path: Path) -> None:
    names = [f"shard/{number % 3}/{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: destination.put(name, name.encode()), names))
    assert files(tmp_path) == sorted(names)
    assert all(destination.get(name) == name.encode() for name in names)
