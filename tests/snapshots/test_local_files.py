"""Files of a destination: whole, durable and named last."""

from __future__ import annotations

import errno
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from shardlog.snapshots.destination import Begun, Destination
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


def pages(count: int) -> memoryview:
    """So many, which begin where pages do."""
    memory = mmap.mmap(-1, count * mmap.PAGESIZE)
    memory[:] = os.urandom(len(memory))
    return memoryview(memory)


def begun(destination: Destination, name: str) -> Begun:
    file = destination.begin(name)
    assert file is not None
    return file


def test_parts_are_written_by_many_threads_in_any_order(
    destination: Destination, tmp_path: Path
) -> None:
    data = pages(64)[:-100]
    part = 8 * mmap.PAGESIZE
    file = begun(destination, "shard/segments/growing")
    with ThreadPoolExecutor(4) as threads:
        starts = reversed(range(0, len(data), part))
        list(threads.map(lambda at: file.write(data[at : at + part], at), starts))
    assert destination.list("shard/") == []
    file.finish("shard/segments/whole")
    file.abandon()
    assert destination.get("shard/segments/whole") == data
    assert files(tmp_path) == ["shard/segments/whole"]


def test_one_that_is_given_up_leaves_nothing(destination: Destination, tmp_path: Path) -> None:
    file = begun(destination, "shard/segments/growing")
    file.write(pages(2), 0)
    file.abandon()
    file.abandon()
    assert files(tmp_path) == []


def test_one_that_is_given_up_is_closed_when_the_last_write_is_done(
    destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writing, go_on = os.pwrite, Event(), Event()
    order: list[str] = []

    def slow(fd: int, data: memoryview, at: int) -> int:
        writing.set()
        assert go_on.wait(60)
        order.append("written")
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", slow)
    file = begun(destination, "one")

    def give_up() -> None:
        file.abandon()
        order.append("given up")

    with ThreadPoolExecutor(2) as threads:
        written = threads.submit(file.write, pages(1), 0)
        assert writing.wait(60)
        given_up = threads.submit(give_up)
        go_on.set()
        written.result()
        given_up.result()
    assert order == ["written", "given up"]
    with pytest.raises(DestinationUnavailable, match="given up"):
        file.write(pages(1), 0)


def test_memory_that_a_disk_cannot_fetch_from_is_written_all_the_same(
    destination: Destination,
) -> None:
    data = pages(4)[1 : 1 + 3 * mmap.PAGESIZE]
    file = begun(destination, "one")
    file.write(data, 0)
    file.finish("one")
    file.abandon()
    assert destination.get("one") == data


def test_a_file_system_that_always_keeps_a_cache(
    destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def cached(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", cached)
    data = pages(3)
    file = begun(destination, "one")
    file.write(data[:-7], 0)
    file.finish("one")
    file.abandon()
    assert destination.get("one") == data[:-7]


def test_a_write_that_comes_to_an_end_early_is_continued(
    destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[: mmap.PAGESIZE], at))
    data = pages(5)
    file = begun(destination, "one")
    file.write(data, 0)
    file.finish("one")
    file.abandon()
    assert destination.get("one") == data
