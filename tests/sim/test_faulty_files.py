"""What the simulated volume leaves after a crash, against a second, slower account of it."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.sim.faulty_files import Crashed, FaultyFile, FaultyFiles, Keep
from shardlog.storage.files import SECTOR_BYTES

SEEDS = st.integers(0, 1 << 32)
WRITES = st.lists(
    st.tuples(st.integers(0, 3000), st.binary(max_size=1400)) | st.integers(0, 4000), max_size=8
)
"""A position and bytes, or a size to allocate."""


def fresh(seed: int = 0) -> FaultyFiles:
    files = FaultyFiles(Random(seed))
    files.make_directory("/d")
    files.sync_directory("/")
    return files


def put(files: FaultyFiles, path: str, content: bytes) -> FaultyFile:
    """A file, durable with its name."""
    file = files.create(path)
    file.write(0, [content])
    file.sync()
    files.sync_directory("/d")
    return file


def get(files: FaultyFiles, path: str) -> bytes:
    file = files.open(path, write=False)
    return file.read(0, file.size())


def do(file: FaultyFile, write: tuple[int, bytes] | int) -> None:
    if isinstance(write, int):
        file.allocate(write)
    else:
        file.write(write[0], [write[1]])


# --- bytes ----------------------------------------------------------------------------------------


@given(WRITES, SEEDS)
def test_what_was_synced_survives(writes: list, seed: int):
    files = fresh(seed)
    file = files.create("/d/a")
    for write in writes:
        do(file, write)
    file.sync()
    files.sync_directory("/d")
    expected = file.read(0, file.size())
    files.crash()
    assert get(files, "/d/a") == expected


@given(WRITES, WRITES, SEEDS)
def test_an_unsynced_sector_is_as_it_was_after_some_write(before: list, after: list, seed: int):
    files = fresh(seed)
    file = put(files, "/d/a", b"")
    for write in before:
        do(file, write)
    file.sync()
    images = [file.read(0, file.size())]
    for write in after:
        do(file, write)
        images.append(file.read(0, file.size()))
    files.crash()
    found = get(files, "/d/a")
    assert len(found) in {len(image) for image in images}
    for start in range(0, len(found), SECTOR_BYTES):
        end = min(start + SECTOR_BYTES, len(found))
        possible = {image[start:end].ljust(end - start, b"\0") for image in images}
        assert found[start:end] in possible


@given(WRITES, WRITES, st.sampled_from(["none", "all"]))
def test_a_crash_can_keep_nothing_or_everything(before: list, after: list, keep: Keep):
    files = fresh()
    file = put(files, "/d/a", b"")
    for write in before:
        do(file, write)
    file.sync()
    expected = file.read(0, file.size())
    for write in after:
        do(file, write)
    if keep == "all":
        expected = file.read(0, file.size())
    files.crash(keep)
    assert get(files, "/d/a") == expected


def test_crashes_tear_a_write_in_every_way():
    found = set()
    for seed in range(200):
        files = fresh(seed)
        file = put(files, "/d/a", b"o" * 3 * SECTOR_BYTES)
        file.write(0, [b"n" * 3 * SECTOR_BYTES])
        files.crash()
        found.add(get(files, "/d/a")[::SECTOR_BYTES])
    assert len(found) == 8


def test_growth_is_lost_without_its_bytes_and_its_bytes_without_growth():
    found = set()
    for seed in range(200):
        files = fresh(seed)
        put(files, "/d/a", b"").write(0, [b"n" * SECTOR_BYTES])
        files.crash()
        found.add(get(files, "/d/a"))
    assert found == {b"", bytes(SECTOR_BYTES), b"n" * SECTOR_BYTES}


def test_of_several_growing_writes_any_may_be_the_last():
    found = set()
    for seed in range(100):
        files = fresh(seed)
        file = put(files, "/d/a", b"")
        for number in range(3):
            file.write(number * 700, [b"n" * 700])
        files.crash()
        found.add(len(get(files, "/d/a")))
    assert found == {0, 700, 1400, 2100}


def test_a_seed_decides():
    def run(seed: int) -> list[bytes]:
        files = fresh(seed)
        file = put(files, "/d/a", bytes(9000))
        left = []
        for number in range(1, 9):
            file.write(number * 100, [bytes([number]) * 5000])
            files.crash()
            left.append(get(files, "/d/a"))
            file = files.open("/d/a")
        return left

    assert run(7) == run(7)
    assert run(7) != run(8)


# --- names ----------------------------------------------------------------------------------------

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["create", "remove", "rename"]),
        st.sampled_from("abc"),
        st.sampled_from("abc"),
    ),
    max_size=8,
)


def change(files: FaultyFiles, verb: str, one: str, other: str) -> None:
    if verb == "create":
        files.create(f"/d/{one}")
    elif verb == "remove" or one not in files.list("/d"):
        files.remove(f"/d/{one}")
    else:
        files.rename(f"/d/{one}", f"/d/{other}")


@given(CHANGES, CHANGES, SEEDS)
def test_names_are_as_they_were_after_some_change(before: list, after: list, seed: int):
    files = fresh(seed)
    for step in before:
        change(files, *step)
    files.sync_directory("/d")
    listings = [files.list("/d")]
    for step in after:
        if step[0] == "create" and step[1] in files.list("/d"):
            listings.append([name for name in files.list("/d") if name != step[1]])
        change(files, *step)
        listings.append(files.list("/d"))
    files.crash()
    assert files.list("/d") in listings


def test_a_name_is_never_kept_without_the_ones_before_it():
    found = set()
    for seed in range(100):
        files = fresh(seed)
        for name in "abc":
            files.create(f"/d/{name}")
        files.crash()
        found.add("".join(files.list("/d")))
    assert found == {"", "a", "ab", "abc"}


def test_a_rename_leaves_one_name_or_the_other():
    found = set()
    for seed in range(50):
        files = fresh(seed)
        put(files, "/d/a", b"new")
        put(files, "/d/b", b"old")
        files.rename("/d/a", "/d/b")
        files.crash()
        found.add((tuple(files.list("/d")), get(files, "/d/b")))
    assert found == {(("a", "b"), b"old"), (("b",), b"new")}


def test_a_synced_file_is_gone_if_its_name_was_not():
    files = fresh()
    file = files.create("/d/a")
    file.write(0, [b"abc"])
    file.sync()
    files.crash("none")
    assert files.list("/d") == []


def test_a_directory_takes_what_is_in_it_along():
    files = fresh()
    files.make_directory("/d/e")
    files.create("/d/e/a").sync()
    files.sync_directory("/d/e")
    files.crash("none")
    assert files.list("/d") == []
    assert files.list("/d/e") == []


def test_directories_are_independent():
    found = set()
    for seed in range(50):
        files = fresh(seed)
        files.make_directory("/e")
        files.sync_directory("/")
        files.create("/d/a")
        files.create("/e/a")
        files.crash()
        found.add((len(files.list("/d")), len(files.list("/e"))))
    assert found == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("synced", ["/d", "/e"])
def test_a_move_is_durable_with_either_directory_and_so_is_what_led_to_it(synced: str):
    files = fresh()
    files.make_directory("/e")
    files.sync_directory("/")
    files.create("/d/before")
    files.create("/d/a")
    files.rename("/d/a", "/e/a")
    files.create("/d/later")
    files.sync_directory(synced)
    files.crash("none")
    assert files.list("/e") == ["a"]
    assert files.list("/d") == ["before", *(["later"] if synced == "/d" else [])]


# --- every crash of a script ----------------------------------------------------------------------

Script = Callable[[FaultyFiles], None]


def replace(files: FaultyFiles) -> None:
    file = files.create("/d/new")
    file.write(0, [b"n" * 1000])
    file.sync()
    file.close()
    files.rename("/d/new", "/d/a")
    files.sync_directory("/d")


def replace_without_sync(files: FaultyFiles) -> None:
    file = files.create("/d/new")
    file.write(0, [b"n" * 1000])
    files.rename("/d/new", "/d/a")
    files.sync_directory("/d")


def left_after_every_crash(script: Script) -> set[bytes]:
    """Before each operation, and after the last."""
    files = fresh()
    put(files, "/d/a", b"o" * 1000)
    start = files.snapshot()
    before = files.operations
    script(files)
    keeps: list[Keep] = ["none", "all"]
    keeps.extend(["random"] * 20)
    found = set()
    for number in range(files.operations - before + 1):
        for keep in keeps:
            files.restore(start)
            files.crash_after(number)
            with suppress(Crashed):
                script(files)
            files.crash(keep)
            found.add(get(files, "/d/a"))
    return found


def test_a_file_is_replaced_whole_whenever_the_power_goes():
    assert left_after_every_crash(replace) == {b"o" * 1000, b"n" * 1000}


def test_a_missing_sync_is_found():
    assert b"" in left_after_every_crash(replace_without_sync)


def test_the_operation_that_meets_a_crash_does_not_take_effect():
    files = fresh()
    file = put(files, "/d/a", b"old")
    files.crash_after(1)
    file.write(0, [b"new"])
    with pytest.raises(Crashed):
        file.sync()
    files.crash("none")
    assert get(files, "/d/a") == b"old"


def test_nothing_happens_between_the_crash_and_the_start():
    files = fresh()
    file = put(files, "/d/a", b"old")
    files.crash_after(0)
    for act in (
        lambda: file.write(0, [b"new"]),
        lambda: file.read(0, 1),
        file.size,
        file.sync,
        lambda: files.open("/d/a"),
        lambda: files.list("/d"),
        lambda: files.remove("/d/a"),
        lambda: files.sync_directory("/d"),
    ):
        with pytest.raises(Crashed):
            act()
    file.close()
    files.crash("all")
    assert get(files, "/d/a") == b"old"


def test_nobody_who_handles_failures_handles_a_crash():
    assert not issubclass(Crashed, Exception)


def test_a_handle_from_before_a_crash_is_an_error_of_the_simulation():
    files = fresh()
    file = put(files, "/d/a", b"old")
    files.crash()
    for act in (file.size, file.sync, lambda: file.read(0, 1), lambda: file.write(0, [b"new"])):
        with pytest.raises(AssertionError, match="before a crash"):
            act()
    file.close()
    assert files.open_files == 0


def test_every_mutating_operation_is_counted():
    files = FaultyFiles(Random(0))
    acts: list[Callable[[], object]] = [
        lambda: files.make_directory("/d"),
        lambda: files.create("/d/a"),
        lambda: files.open("/d/a").write(0, [b"abc"]),
        lambda: files.open("/d/a").allocate(10),
        lambda: files.open("/d/a").sync(),
        lambda: files.rename("/d/a", "/d/b"),
        lambda: files.remove("/d/b"),
        lambda: files.sync_directory("/d"),
    ]
    for number, act in enumerate(acts):
        assert files.operations == number
        act()
    before = files.operations
    files.list("/d")
    files.make_directory("/d")
    assert files.operations == before


def test_a_snapshot_is_what_is_durable_and_stays_what_it_was():
    files = fresh()
    file = put(files, "/d/a", b"durable")
    file.write(0, [b"unsynced"])
    files.create("/d/b")
    tree = files.snapshot()
    for _ in range(2):
        files.restore(tree)
        assert files.list("/d") == ["a"]
        assert get(files, "/d/a") == b"durable"
        put(files, "/d/a", b"changed")


def test_a_wiped_volume_is_empty():
    files = fresh()
    put(files, "/d/a", b"abc")
    files.wipe()
    assert files.list("/") == []
    files.crash("all")
    assert files.list("/") == []
