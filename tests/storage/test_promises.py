"""What a replica has promised is there after a crash: superblock, entries, commit context."""

import pytest

from shardlog.checksum import sum_of
from shardlog.protocol.effects import (
    Barrier,
    Format,
    Sync,
    TrimLog,
    TruncateLog,
    WriteSuperblock,
)
from shardlog.protocol.entry import unreadable
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.history import Span
from shardlog.protocol.log import Mark
from shardlog.sim.faulty_files import Crashed
from shardlog.storage.failures import DiskFailed
from shardlog.storage.layout import (
    ENTRY_HEADER_BYTES,
    SLOT_BYTES,
    RecordType,
    pack_header,
)
from shardlog.storage.root import pack_root
from shardlog.storage.superblock import COPIES, STRIDE_BYTES, SuperblockFile, _packed
from storage.driver import DIRECTORY, Driver, begun
from storage.scripts import ENTRIES, base_of, end_of, epoch_1, epoch_2, fenced, parted, twelve
from storage.states import after, found, superblock, write
from storage.tampering import overwrite, refused, resealed, tamper

SUPERBLOCK = f"{DIRECTORY}/superblock"


# --- M: records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [2, 3, 6, 7, 255])
def test_M1_an_unknown_record_type_among_the_slots_fails_the_start(kind: int) -> None:
    driver = twelve()
    segment, number, _ = driver.place(base_of(9))
    at = segment.slot_position(number)
    file = driver.files.open(segment.path)
    summed = bytes([kind]) + file.read(at + 1, SLOT_BYTES - 5)
    overwrite(driver, segment.path, at, summed + sum_of(summed).to_bytes(4, "little"))
    failure = refused(driver)
    assert (failure.path, failure.position) == (segment.path, at)
    assert f"type {kind}" in failure.why


def forge_root(driver: Driver, old: bytes, new: bytes) -> None:
    """Another root in all four places, with right checksums."""
    root = driver.store.files.root
    assert root is not None
    data = pack_root(root)
    assert data.count(old) == 1
    data = data.replace(old, new)
    sequence = driver.store.files.superblocks.sequence
    for place in range(COPIES):
        each = sequence if place in ((0, 1) if sequence % 2 else (2, 3)) else sequence - 1
        overwrite(driver, SUPERBLOCK, place * STRIDE_BYTES, _packed(each, data))


def record_bytes(driver: Driver) -> bytes:
    root = driver.store.files.root
    assert root is not None
    record = root.records[-1]
    fields = (record.sequence, record.type, record.number, record.epoch, record.offset)
    return b"".join(int(field).to_bytes(8, "little") for field in fields)


def test_M1_an_unknown_control_record_fails_the_start() -> None:
    driver = twelve()
    old = record_bytes(driver)
    forge_root(driver, old, old[:8] + (9).to_bytes(8, "little") + old[16:])
    failure = refused(driver)
    assert (failure.path, failure.position) == (SUPERBLOCK, 0)
    assert "unknown record type 9" in failure.why


def test_M1_a_gap_in_the_control_records_fails_the_start() -> None:
    driver = twelve()
    old = record_bytes(driver)
    sequence = int.from_bytes(old[:8], "little")
    forge_root(driver, old, (sequence + 1).to_bytes(8, "little") + old[8:])
    failure = refused(driver)
    assert failure.path == SUPERBLOCK
    assert f"control record {sequence} is missing" in failure.why


def test_M1_a_gap_between_entries_fails_the_start() -> None:
    driver = twelve()
    header = ENTRIES[9].header
    moved = resealed(header, base=header.base + 5)
    path, at = tamper(driver, base_of(9), header=moved)
    failure = refused(driver)
    assert (failure.path, failure.position) == (path, at)
    assert "gap" in failure.why


def test_M2_nothing_is_reported_before_it_is_synced() -> None:
    """The disk drops all that was not synced, after every single round."""
    for rounds in range(1, 12):
        driver = begun()
        driver.submit(write(ENTRIES[:3]), Sync(1), write(ENTRIES[3:12]), Sync(2))
        driver.submit(fenced(2), Sync(3))
        for _ in range(rounds):
            driver.step()
        driver.crash("none")
        kept = {0: 0, 1: 3, 2: 12, 3: 12}[max(driver.reported[2:], default=0)]
        assert len(found(driver.store, driver.recovered).headers) >= kept


def test_M2_a_token_waits_for_the_slots_of_its_entries() -> None:
    driver = begun()
    driver.submit(write(ENTRIES[:1]), Sync(5))
    steps = 0
    while 5 not in driver.reported:
        assert driver.step()
        steps += 1
    assert steps == 3  # the segment, the entry, its slot


def test_M3_a_formatted_replica_has_a_checkpoint_and_an_end() -> None:
    driver = Driver()
    driver.do(Format(superblock()))
    assert driver.store.files.root is not None
    types = [record.type for record in driver.store.files.root.records]
    assert types == [RecordType.CHECKPOINT, RecordType.EPOCH_END]


def test_M5_no_trim_while_fenced() -> None:
    driver = twelve()
    driver.do(fenced(2, end_of(5)))
    driver.submit(TrimLog(end_of(3), ENTRIES[3].header.checksum))
    with pytest.raises(ImpossibleState, match="fenced"):
        driver.settle()


def test_M7_restarted_many_times_the_answer_is_equal() -> None:
    driver = twelve()
    driver.rot_both(base_of(7), base_of(8))
    driver.rot_entry(base_of(10))
    first = driver.damaged_restart()
    assert first.marks
    for _ in range(5):
        driver.files.crash("random")
        assert driver.open() == first


def test_M9_every_acknowledged_entry_survives_by_default() -> None:
    driver = begun()
    for at in range(0, 20, 2):
        driver.submit(write(ENTRIES[at : at + 2]), Sync(100 + at))
        driver.step()
        acknowledged = driver.states[driver.kept].headers
        driver.crash("none")
        headers = found(driver.store, driver.recovered).headers
        assert headers[: len(acknowledged)] == acknowledged
        driver.submit(write(ENTRIES[len(headers) : at + 2]))
        driver.settle()
    assert len(driver.state.headers) == 20


# --- N and T: superblock and chain ---------------------------------------------------------------


def test_N1_a_torn_superblock_is_the_old_one_or_the_new_one() -> None:
    old, new = superblock(1, history=(Span(1, 0),)), superblock(3, led=3, history=(Span(3, 0),))
    seen = set()
    for seed in range(8):
        for cut in range(8):
            driver = begun()
            driver.files.random.seed(seed)
            driver.submit(WriteSuperblock(new), Sync(9))
            driver.files.crash_after(cut)
            try:
                driver.settle()
            except Crashed:
                assert 9 not in driver.reported
            driver.crash("random")
            assert driver.recovered is not None
            seen.add(driver.recovered.superblock)
            if 9 in driver.reported:
                assert driver.recovered.superblock == new
    assert seen == {old, new}


def test_N1_thousands_of_spans_fit() -> None:
    driver = begun()
    for count in (500, 600, 5000, 5001, 40):
        history = tuple(Span(1 + number, number) for number in range(count))
        driver.do(WriteSuperblock(superblock(count, history=history)))
        recovered = driver.crash()
        assert recovered is not None
        assert recovered.superblock.history == history


def test_N2_a_history_adopted_before_any_entry_came_is_kept_whole() -> None:
    """Clipping it to what is held is the replica's; the disk gives back what it was given."""
    driver = twelve()
    driver.do(TruncateLog(end_of(8)), Barrier(), epoch_2(9, end_of(5)))
    recovered = driver.crash()
    assert recovered is not None
    assert recovered.superblock.history == (Span(1, 0), Span(2, end_of(8)))
    assert recovered.headers[-1].end == end_of(8)


@pytest.mark.parametrize("fault", ["fail_next_write", "fail_next_sync"])
def test_N6_N9_an_error_in_each_gap_breaks_the_store_and_loses_nothing(fault: str) -> None:
    """Fence, truncate, adopt, append: an error at every round, then a restart."""
    for rounds in range(12):
        driver = twelve()
        driver.submit(fenced(2, end_of(5)), Sync(1))
        driver.submit(TruncateLog(end_of(8)), Barrier(), epoch_2(9, end_of(5)), Sync(2))
        driver.submit(write(parted(9, 2)), Sync(3))
        for _ in range(rounds):
            driver.step()
        round_ = driver.store.take()
        if round_ is None:
            continue
        getattr(driver.files, fault)()
        try:
            round_.write()
            round_.sync()
        except DiskFailed:
            driver.store.fail(round_)
            with pytest.raises(ImpossibleState):
                driver.store.take()
        driver.crash("random")


def test_T1_a_wrong_parent_on_disk_is_refused() -> None:
    driver = twelve()
    stranger = after(ENTRIES[:9], 1, epoch=4)[0].header
    false = resealed(stranger, parent=12345, count=1)
    path, at = tamper(driver, base_of(9), header=false, length=false.body_checksum >> 32)
    failure = refused(driver)
    assert (failure.path, failure.position) == (path, at)
    assert "does not follow" in failure.why


def test_a_wrong_length_is_not_believed_when_the_slot_is_lost_too() -> None:
    """Else all that follows would be looked for in the wrong place."""
    driver = twelve()
    place = driver.store.files.segments.covering(base_of(9))
    assert place is not None
    driver.files.rot(place.segment.path, place.segment.slot_position(place.number) + 46)
    driver.files.rot(place.segment.path, place.slot.position + 28)
    driver.files.crash("none")
    recovered = driver.open()
    assert recovered is not None
    assert (base_of(9), Mark.FAULT) in recovered.marks


def test_T1_a_wrong_parent_over_the_end_of_a_segment_is_refused() -> None:
    driver = twelve()
    path, at = tamper(driver, base_of(8), header=resealed(ENTRIES[8].header, parent=12345))
    failure = refused(driver)
    assert (failure.path, failure.position) == (path, at)


def test_T4_killed_after_the_reply_the_promise_is_there() -> None:
    driver = twelve()
    driver.do(WriteSuperblock(superblock(4, led=4, history=(Span(1, 0),), commit=end_of(5))))
    recovered = driver.crash("none")
    assert recovered is not None
    assert (recovered.superblock.epoch, recovered.superblock.led) == (4, 4)


def test_T4_two_bad_copies_of_the_newest_are_damage() -> None:
    driver = twelve()
    driver.do(fenced(2, end_of(5)))
    newest = driver.store.files.superblocks.sequence
    pair = (0, 1) if newest % 2 else (2, 3)
    for place in pair:
        driver.files.rot(SUPERBLOCK, place * STRIDE_BYTES + 40, 4)
    failure = refused(driver)
    assert (failure.path, failure.position) == (SUPERBLOCK, pair[0] * STRIDE_BYTES)


def test_T4_any_single_copy_may_go_and_is_mended() -> None:
    for place in range(COPIES):
        driver = twelve()
        driver.do(fenced(2, end_of(5)))
        driver.files.rot(SUPERBLOCK, place * STRIDE_BYTES + 40, 4)
        recovered = driver.crash()
        assert recovered is not None
        assert recovered.superblock.epoch == 2
        assert None not in SuperblockFile(driver.files, DIRECTORY).copies()


def test_T5_a_wiped_directory_is_no_replica() -> None:
    driver = twelve()
    driver.files.wipe()
    driver.files.make_directory("volume")
    assert driver.open() is None
    assert driver.store.headers(0, 100, 100) == []


def test_a_cut_below_the_commit_offset_is_impossible() -> None:
    driver = twelve()
    driver.submit(TruncateLog(end_of(4)))
    with pytest.raises(ImpossibleState):
        driver.settle()


def test_what_lies_behind_the_end_at_a_start_never_comes_back() -> None:
    """Two entries were on their way; the first did not land, the second did."""
    driver = begun(ENTRIES[:3])
    segment = driver.place(base_of(2))[0]
    lost, stray = ENTRIES[3], ENTRIES[4]
    at = segment.position + ENTRY_HEADER_BYTES + len(lost.body)
    overwrite(driver, segment.path, at, pack_header(stray.header, len(stray.body)) + stray.body)
    driver.crash()
    driver.do(write([lost]), epoch_2(4))
    driver.crash()
    assert driver.state.headers[-1] == lost.header


def test_a_lost_stretch_that_begins_below_the_first_offset_keeps_its_rest() -> None:
    driver = twelve()
    driver.do(epoch_1(end_of(5)), TrimLog(end_of(2), ENTRIES[2].header.checksum))
    driver.rot_both(base_of(2), base_of(3), base_of(4))
    recovered = driver.damaged_restart()
    assert recovered.headers[0] == unreadable(1, end_of(2), end_of(4) - end_of(2))
    assert recovered.marks == ((end_of(2), Mark.FAULT),)
    assert recovered.headers[1] == ENTRIES[5].header


def test_a_slot_is_written_again_at_a_start_so_that_later_damage_is_no_blank() -> None:
    """The entry landed, its slot did not: found whole it counts, and must be told from torn."""
    driver = begun(ENTRIES[:3])
    driver.submit(write(ENTRIES[3:4]))
    driver.step()
    driver.crash("none")
    assert len(driver.state.headers) == 4
    driver.rot_entry(base_of(3))
    recovered = driver.damaged_restart()
    assert recovered.marks == ((base_of(3), Mark.CORRUPT),)
