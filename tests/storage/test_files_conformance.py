"""One suite for both sides of the filesystem seam: what the engine may take for granted.

What the simulated side promises and the real one does not keep would be a bug that no simulation
finds, so random scripts are run on both and compared as well.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardlog.sim.faulty_files import FaultyFiles
from shardlog.storage.failures import DiskFailed, MissingFile, StorageFailure
from shardlog.storage.files import Files
from shardlog.storage.real_files import IOV_MAX, RealFiles


@dataclass
class Volume:
    files: Files
    base: str

    def at(self, name: str) -> str:
        return f"{self.base}/{name}"

    def put(self, name: str, content: bytes) -> None:
        file = self.files.create(self.at(name))
        file.write(0, [content])
        file.close()

    def get(self, name: str) -> bytes:
        file = self.files.open(self.at(name), write=False)
        content = file.read(0, file.size())
        file.close()
        return content


def real(base: str) -> Volume:
    return Volume(RealFiles(), base)


def faulty(base: str) -> Volume:
    files = FaultyFiles(Random(0))
    files.make_directory(base)
    return Volume(files, base)


@pytest.fixture(params=[real, faulty])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Volume:
    made: Volume = request.param(str(tmp_path))
    return made


# --- bytes ----------------------------------------------------------------------------------------


def test_reads_back_what_was_written(volume: Volume):
    file = volume.files.create(volume.at("a"))
    assert file.path == volume.at("a")
    assert file.size() == 0
    file.write(0, [b"abc", bytearray(b"def"), memoryview(b"-ghi-")[1:4]])
    assert file.read(0, 9) == b"abcdefghi"
    assert file.read(4, 2) == b"ef"
    assert file.size() == 9


def test_overwrites_in_the_middle(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.write(0, [b"0123456789"])
    file.write(3, [b"abc"])
    assert file.read(0, 10) == b"012abc6789"


def test_what_it_returns_does_not_change_afterwards(volume: Volume):
    file = volume.files.create(volume.at("a"))
    given_away = bytearray(b"mine")
    file.write(0, [given_away])
    found = file.read(0, 4)
    given_away[:] = b"gone"
    file.write(0, [b"else"])
    assert found == b"mine"


def test_reads_are_short_only_at_the_end(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.write(0, [b"x" * 1000])
    assert len(file.read(0, 1000)) == 1000
    assert len(file.read(600, 1000)) == 400
    assert file.read(1000, 5) == b""
    assert file.read(5000, 5) == b""
    assert file.read(0, 0) == b""


def test_what_is_read_alone_is_the_same(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.write(0, [b"x" * 1000, b"y" * 1000])
    assert file.read_alone(900, 200) == b"x" * 100 + b"y" * 100
    assert file.read_alone(1900, 200) == b"y" * 100
    assert file.read_alone(5000, 5) == b""


def test_what_is_in_memory_is_the_same_or_not_told(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.write(0, [b"x" * 1000])
    assert file.read_cached(100, 200) in (None, b"x" * 200)
    assert file.read_cached(900, 200) is None, "not all of it is there"
    assert file.read_cached(5000, 5) is None


def test_a_hole_reads_as_zeros(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.write(10_000, [b"end"])
    assert file.size() == 10_003
    assert file.read(0, 10_003) == bytes(10_000) + b"end"


def test_takes_more_buffers_than_the_kernel_does(volume: Volume):
    buffers = [bytes([number % 251]) * (number % 7) for number in range(3 * IOV_MAX + 1)]
    file = volume.files.create(volume.at("a"))
    file.write(5, buffers)
    assert file.read(5, 1 << 20) == b"".join(buffers)


def test_a_write_of_nothing_does_nothing(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.write(100, [])
    file.write(100, [b"", b""])
    assert file.size() == 0


def test_allocate_grows_with_zeros_and_never_shrinks(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.write(0, [b"abc"])
    file.allocate(5000)
    assert file.size() == 5000
    assert file.read(0, 5000) == b"abc" + bytes(4997)
    file.allocate(10)
    file.allocate(0)
    assert file.size() == 5000


def test_two_handles_see_one_file(volume: Volume):
    writer = volume.files.create(volume.at("a"))
    reader = volume.files.open(volume.at("a"), write=False)
    writer.write(0, [b"seen"])
    assert reader.read(0, 4) == b"seen"
    reader.sync()


def test_unsynced_writes_outlive_the_handle(volume: Volume):
    volume.put("a", b"kept")
    assert volume.get("a") == b"kept"


def test_sync(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.write(0, [b"abc"])
    file.sync()
    file.sync()
    volume.files.sync_directory(volume.base)
    assert volume.get("a") == b"abc"


# --- names ----------------------------------------------------------------------------------------


def test_create_takes_the_place_of_what_was_there(volume: Volume):
    volume.put("a", b"old")
    old = volume.files.open(volume.at("a"))
    new = volume.files.create(volume.at("a"))
    assert new.size() == 0
    assert old.read(0, 3) == b"old"
    assert volume.files.list(volume.base) == ["a"]


def test_rename_replaces(volume: Volume):
    volume.put("a", b"new")
    volume.put("b", b"old")
    volume.files.rename(volume.at("a"), volume.at("b"))
    assert volume.files.list(volume.base) == ["b"]
    assert volume.get("b") == b"new"


def test_rename_to_itself_changes_nothing(volume: Volume):
    volume.put("a", b"abc")
    volume.files.rename(volume.at("a"), volume.at("a"))
    assert volume.get("a") == b"abc"


def test_rename_moves_a_directory_and_what_is_in_it(volume: Volume):
    volume.files.make_directory(volume.at("d"))
    volume.put("d/a", b"abc")
    volume.files.rename(volume.at("d"), volume.at("e"))
    assert volume.files.list(volume.base) == ["e"]
    assert volume.get("e/a") == b"abc"


def test_an_open_file_outlives_its_name(volume: Volume):
    volume.put("a", b"abc")
    file = volume.files.open(volume.at("a"))
    volume.files.remove(volume.at("a"))
    file.write(3, [b"def"])
    file.sync()
    assert file.read(0, 6) == b"abcdef"
    assert volume.files.list(volume.base) == []


def test_remove_is_content_with_what_is_gone(volume: Volume):
    volume.put("a", b"abc")
    volume.files.remove(volume.at("a"))
    volume.files.remove(volume.at("a"))
    volume.files.remove(volume.at("no/such"))
    assert volume.files.list(volume.base) == []


def test_remove_takes_empty_directories_only(volume: Volume):
    volume.files.make_directory(volume.at("d"))
    volume.put("d/a", b"abc")
    with pytest.raises(DiskFailed, match="not empty"):
        volume.files.remove(volume.at("d"))
    volume.files.remove(volume.at("d/a"))
    volume.files.remove(volume.at("d"))
    assert volume.files.list(volume.base) == []


def test_make_directory_makes_its_parents_and_can_be_repeated(volume: Volume):
    volume.files.make_directory(volume.at("d/e/f"))
    volume.files.make_directory(volume.at("d/e/f"))
    assert volume.files.list(volume.at("d")) == ["e"]
    assert volume.files.list(volume.at("d/e")) == ["f"]


def test_list_is_sorted_and_empty_for_what_is_absent(volume: Volume):
    for name in ("b", "a10", "a9", "B"):
        volume.put(name, b"")
    assert volume.files.list(volume.base) == ["B", "a10", "a9", "b"]
    assert volume.files.list(volume.at("no/such")) == []


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        lambda files, base: files.open(f"{base}/no"),
        lambda files, base: files.open(f"{base}/no", write=False),
        lambda files, base: files.create(f"{base}/no/a"),
        lambda files, base: files.rename(f"{base}/no", f"{base}/a"),
        lambda files, base: files.sync_directory(f"{base}/no"),
    ],
)
def test_what_is_missing_is_said_by_type(volume: Volume, act: Callable[[Files, str], object]):
    with pytest.raises(MissingFile) as caught:
        act(volume.files, volume.base)
    assert caught.value.path.startswith(f"{volume.base}/no")


@pytest.mark.parametrize(
    "act",
    [
        lambda files, base: files.open(f"{base}/d"),
        lambda files, base: files.create(f"{base}/d"),
        lambda files, base: files.open(f"{base}/a/b"),
        lambda files, base: files.list(f"{base}/a"),
        lambda files, base: files.make_directory(f"{base}/a"),
        lambda files, base: files.make_directory(f"{base}/a/b"),
        lambda files, base: files.rename(f"{base}/a", f"{base}/d"),
        lambda files, base: files.rename(f"{base}/d", f"{base}/a"),
        lambda files, base: files.rename(f"{base}/d", f"{base}/d/e"),
        lambda files, base: files.sync_directory(f"{base}/a"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused(volume: Volume, act: Callable[[Files, str], object]):
    volume.put("a", b"abc")
    volume.files.make_directory(volume.at("d"))
    with pytest.raises(DiskFailed):
        act(volume.files, volume.base)
    assert volume.files.list(volume.base) == ["a", "d"]
    assert volume.get("a") == b"abc"


def test_a_file_opened_for_reading_is_not_written(volume: Volume):
    volume.put("a", b"abc")
    file = volume.files.open(volume.at("a"), write=False)
    with pytest.raises(DiskFailed):
        file.write(0, [b"x"])
    with pytest.raises(DiskFailed):
        file.allocate(10)
    assert file.read(0, 10) == b"abc"


def test_a_closed_file_refuses_everything_but_another_close(volume: Volume):
    file = volume.files.create(volume.at("a"))
    file.close()
    file.close()
    for act in (
        file.size,
        file.sync,
        lambda: file.read(0, 1),
        lambda: file.write(0, [b"x"]),
        lambda: file.allocate(1),
    ):
        with pytest.raises(DiskFailed, match="Bad file descriptor"):
            act()


# --- both sides, the same script ------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"])
PLACES = st.integers(0, 1500)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["create", "remove", "make", "list", "get", "sync"]), NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("write"), NAMES, PLACES, st.lists(st.binary(max_size=600), max_size=4)),
    st.tuples(st.just("allocate"), NAMES, PLACES),
)


def outcome(volume: Volume, step: tuple) -> object:
    """What a step returned, or the type of its failure."""
    files = volume.files
    verb, path, *rest = step[0], volume.at(step[1]), *step[2:]
    try:
        match verb:
            case "create":
                files.create(path).close()
            case "remove":
                files.remove(path)
            case "make":
                files.make_directory(path)
            case "list":
                return files.list(path)
            case "get":
                return volume.get(step[1])
            case "sync":
                files.sync_directory(path)
            case "rename":
                files.rename(path, volume.at(rest[0]))
            case "write" | "allocate":
                file = files.open(path)
                getattr(file, verb)(*rest)
                size = file.size()
                file.close()
                return size
    except StorageFailure as failure:
        return type(failure)
    return None


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_both_sides_answer_alike(steps: list[tuple]):
    with tempfile.TemporaryDirectory() as base:
        one, other = real(base), faulty(base)
        for step in steps:
            assert outcome(one, step) == outcome(other, step), step
