"""Each fault the adversary can deal, one at a time: it strikes once, and where it was meant to."""

from random import Random

import pytest

from shardlog.sim.faulty_files import FaultyFile, FaultyFiles
from shardlog.storage.failures import DiskFailed, DiskFull, ReadOnlyVolume, TooManyOpenFiles
from shardlog.storage.files import SECTOR_BYTES

PATH = "/a"


def volume(content: bytes, seed: int = 0) -> tuple[FaultyFiles, FaultyFile]:
    """With one file, durable with its name."""
    files = FaultyFiles(Random(seed))
    file = files.create(PATH)
    file.write(0, [content])
    file.sync()
    files.sync_directory("/")
    return files, file


def whole(files: FaultyFiles) -> bytes:
    file = files.open(PATH, write=False)
    return file.read(0, file.size())


# --- decay ----------------------------------------------------------------------------------------


def test_rot_changes_each_byte_and_no_other():
    files, file = volume(bytes(100))
    files.rot(PATH, 10, 5)
    found = file.read(0, 100)
    assert all(found[10:15])
    assert not any(found[:10] + found[15:])
    files.crash("none")
    assert whole(files) == found


@pytest.mark.parametrize("keep", ["none", "all"])
def test_rot_strikes_what_was_not_synced_as_well(keep):
    files, file = volume(b"o" * 100)
    file.write(20, [b"n" * 20])
    files.rot(PATH, 15, 10)
    found = file.read(0, 100)
    assert found[:15] == b"o" * 15
    assert b"o" not in found[15:20]
    assert b"n" not in found[20:25]
    assert found[25:40] == b"n" * 15
    files.crash(keep)
    assert all(byte not in b"on" for byte in whole(files)[15:20])
    if keep == "all":
        assert whole(files) == found


def test_rot_is_undone_by_a_later_write():
    files, file = volume(b"o" * 100)
    files.rot(PATH, 0, 100)
    file.write(0, [b"n" * 100])
    file.sync()
    files.crash("none")
    assert whole(files) == b"n" * 100


def test_damage_that_hits_nothing_is_an_error_of_the_test():
    files, _ = volume(b"o" * 100)
    with pytest.raises(AssertionError, match="hit something"):
        files.rot(PATH, 100)
    with pytest.raises(AssertionError, match="no such sector"):
        files.unreadable_sector(PATH, 1)


def test_a_lost_sector_reads_as_zeros_until_it_is_written():
    files, file = volume(b"o" * 3 * SECTOR_BYTES)
    files.lose_sector(PATH, 1)
    assert file.read(0, 9999)[::SECTOR_BYTES] == b"o\0o"
    assert not any(file.read(SECTOR_BYTES, SECTOR_BYTES))
    file.write(SECTOR_BYTES, [b"n" * SECTOR_BYTES])
    file.sync()
    files.crash("none")
    assert whole(files)[::SECTOR_BYTES] == b"ono"


def test_an_unreadable_sector_fails_the_reads_that_touch_it():
    files, file = volume(b"o" * 3 * SECTOR_BYTES)
    files.unreadable_sector(PATH, 1)
    assert file.read(0, SECTOR_BYTES) == b"o" * SECTOR_BYTES
    assert file.read(2 * SECTOR_BYTES, SECTOR_BYTES) == b"o" * SECTOR_BYTES
    for position, length in ((0, SECTOR_BYTES + 1), (SECTOR_BYTES, 1), (2 * SECTOR_BYTES - 1, 9)):
        with pytest.raises(DiskFailed):
            file.read(position, length)
    files.crash()
    with pytest.raises(DiskFailed):
        whole(files)
    files.restore(files.snapshot())
    with pytest.raises(DiskFailed):
        whole(files)


def test_an_unreadable_sector_is_healed_by_a_whole_write_once_that_has_landed():
    files, file = volume(b"o" * 3 * SECTOR_BYTES)
    files.unreadable_sector(PATH, 1)
    with pytest.raises(DiskFailed):
        file.write(SECTOR_BYTES + 5, [b"n"])
    with pytest.raises(DiskFailed):
        file.write(0, [b"n" * (SECTOR_BYTES + 5)])
    file.write(SECTOR_BYTES, [b"n" * SECTOR_BYTES])
    assert file.read(0, 9999)[::SECTOR_BYTES] == b"ono"
    files.crash("none")
    with pytest.raises(DiskFailed):
        whole(files)
    file = files.open(PATH)
    file.write(SECTOR_BYTES, [b"n" * SECTOR_BYTES])
    file.sync()
    files.crash("none")
    assert whole(files)[::SECTOR_BYTES] == b"ono"


def test_an_unreadable_sector_stays_so_if_the_write_did_not_land():
    found = set()
    for seed in range(50):
        files, file = volume(b"o" * SECTOR_BYTES, seed)
        files.unreadable_sector(PATH, 0)
        file.write(0, [b"n" * SECTOR_BYTES])
        files.crash()
        try:
            found.add(whole(files)[:1])
        except DiskFailed:
            found.add(b"unreadable")
    assert found == {b"n", b"unreadable"}


# --- misdirected and failing calls ----------------------------------------------------------------


def test_a_misdirected_write_spoils_another_place_and_misses_its_own():
    files, file = volume(b"o" * 100)
    other = files.create("/b")
    files.misdirect_next_write(PATH, 95)
    other.write(0, [b"n" * 10])
    assert other.read(0, 99) == bytes(10)
    assert file.read(0, 999) == b"o" * 95 + b"n" * 5
    other.write(0, [b"n" * 10])
    assert other.read(0, 99) == b"n" * 10
    files.crash("none")
    assert whole(files) == b"o" * 95 + b"n" * 5


def test_a_write_fails_once_and_may_have_got_some_way():
    found = set()
    for seed in range(50):
        files, file = volume(b"o" * 2 * SECTOR_BYTES, seed)
        files.fail_next_write()
        file.sync()
        with pytest.raises(DiskFailed):
            file.write(0, [b"n" * 2 * SECTOR_BYTES])
        found.add(file.read(0, 9999)[::SECTOR_BYTES])
        file.write(0, [b"x"])
        assert file.read(0, 1) == b"x"
    assert found == {b"oo", b"no", b"nn"}


def test_a_file_cannot_be_opened_once():
    files, _ = volume(b"o")
    files.fail_next_open()
    with pytest.raises(DiskFailed, match="open"):
        files.open(PATH)
    assert files.open(PATH).read(0, 9) == b"o"
    files.fail_next_open()
    files.fail_next_open(False)
    assert files.open(PATH).read(0, 9) == b"o"


def test_after_a_failed_sync_the_cache_shows_what_may_be_lost():
    found = set()
    for seed in range(100):
        files, file = volume(b"o" * 2 * SECTOR_BYTES, seed)
        file.write(0, [b"n" * 2 * SECTOR_BYTES])
        files.fail_next_sync()
        with pytest.raises(DiskFailed):
            file.sync()
        assert whole(files) == b"n" * 2 * SECTOR_BYTES
        files.open(PATH).sync()
        files.crash("all")
        found.add(whole(files)[::SECTOR_BYTES])
    assert found == {b"oo", b"on", b"no", b"nn"}


def test_a_sync_is_not_tried_again_after_it_failed():
    files, file = volume(b"o")
    files.fail_next_sync()
    with pytest.raises(DiskFailed):
        file.sync()
    with pytest.raises(AssertionError, match="synced again"):
        file.sync()


def test_a_crash_takes_faults_that_were_dealt_along():
    files, _ = volume(b"o" * 100)
    files.fail_next_open()
    files.fail_next_write()
    files.fail_next_sync()
    files.misdirect_next_write(PATH, 50)
    files.crash()
    file = files.open(PATH)
    file.write(0, [b"n" * 10])
    file.sync()
    assert whole(files) == b"n" * 10 + b"o" * 90


# --- limits ---------------------------------------------------------------------------------------


def test_a_full_volume_writes_nothing_and_has_room_after_a_removal():
    files, file = volume(b"o" * 100)
    other = files.create("/b")
    other.write(0, [bytes(50)])
    files.full(10)
    file.write(95, [b"n" * 10])
    with pytest.raises(DiskFull):
        file.write(95, [b"x" * 16])
    with pytest.raises(DiskFull):
        file.allocate(111)
    assert file.read(0, 999) == b"o" * 95 + b"n" * 10
    file.write(0, [b"in place"])
    file.allocate(110)
    files.remove("/b")
    file.allocate(160)
    files.full(None)
    file.allocate(9999)


def test_a_read_only_volume_can_be_read():
    files, file = volume(b"o" * 100)
    files.read_only = True
    for act in (
        lambda: file.write(0, [b"n"]),
        lambda: file.allocate(999),
        lambda: files.open(PATH),
        lambda: files.create("/b"),
        lambda: files.make_directory("/d"),
        lambda: files.rename(PATH, "/b"),
        lambda: files.remove(PATH),
    ):
        with pytest.raises(ReadOnlyVolume):
            act()
    file.sync()
    files.make_directory("/")
    assert whole(files) == b"o" * 100


def test_no_more_files_are_open_than_allowed():
    files, file = volume(b"o")
    files.open_files_max = 2
    second = files.open(PATH)
    with pytest.raises(TooManyOpenFiles):
        files.open(PATH)
    with pytest.raises(TooManyOpenFiles):
        files.create("/b")
    assert files.list("/") == ["a"]
    second.close()
    second.close()
    files.open(PATH).close()
    file.close()
    assert files.open_files == 0
