"""Sectors that are gone, files cut short, missing, renamed or of somebody else."""

from collections import Counter

import pytest

from shardlog.checksum import sum_of
from shardlog.protocol.effects import RewriteEntry
from shardlog.storage.failures import (
    Damaged,
    MissingFile,
    StorageFailure,
    WrongFormat,
    WrongIdentity,
)
from shardlog.storage.files import SECTOR_BYTES
from shardlog.storage.layout import HEAD_COPY_BYTES, SEGMENT_MAGIC
from shardlog.storage.superblock import COPIES, STRIDE_BYTES
from storage.damage import LAST, SPECIMEN, Contents
from storage.driver import DIRECTORY

SEGMENTS = [name for name in SPECIMEN.contents if name != "superblock"]
FIRST, MIDDLE = sorted(SEGMENTS)[:2]
EVERY_SECTOR = [
    (name, sector)
    for name, data in SPECIMEN.contents.items()
    for sector in range(len(data) // SECTOR_BYTES)
]


def test_every_lost_sector_is_right_or_marked() -> None:
    """A sector of zeros: nothing is taken for blank that was acknowledged."""
    outcomes: Counter[str] = Counter()
    for name, sector in EVERY_SECTOR:
        files = SPECIMEN.volume(SPECIMEN.contents)
        files.lose_sector(f"{DIRECTORY}/{name}", sector)
        outcomes[SPECIMEN.judge(files, name)] += 1
    assert outcomes["refused"] == 0
    assert outcomes["right"] > outcomes["marked"] > 0


def test_every_unreadable_sector_is_right_or_marked_and_made_good() -> None:
    """What can be written again is, so that the disk gives no errors at the next start."""
    outcomes: Counter[str] = Counter()
    for name, sector in EVERY_SECTOR:
        files = SPECIMEN.volume(SPECIMEN.contents, {name: {sector}})
        outcomes[SPECIMEN.judge(files, name)] += 1
        files.crash("none")
        outcomes[SPECIMEN.judge(files, name)] += 1
    assert outcomes["refused"] == 0
    assert outcomes["right"] > outcomes["marked"] > 0


def test_a_repair_replaces_a_sector_that_cannot_be_read() -> None:
    entry = SPECIMEN.truth[max(SPECIMEN.truth)]
    files = SPECIMEN.volume(SPECIMEN.contents)
    store, _ = SPECIMEN.opened(files)
    place = store.files.segments.covering(entry.header.base)
    assert place is not None
    sectors = {place.slot.position // SECTOR_BYTES, (place.slot.after - 1) // SECTOR_BYTES}
    files = SPECIMEN.volume(SPECIMEN.contents, {LAST: sectors})
    store, recovered = SPECIMEN.opened(files)
    assert recovered is not None
    bad = [base for base, _ in recovered.marks]
    for base in bad:
        store.submit(RewriteEntry(SPECIMEN.truth[base]))
    while (round_ := store.take()) is not None:
        round_.write()
        round_.sync()
        store.finish(round_)
    files.crash("none")
    assert bad
    assert SPECIMEN.judge(files, LAST) == "right"


# --- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECIMEN.contents)
def test_a_file_cut_short_names_itself(name: str) -> None:
    data = SPECIMEN.contents[name]
    for length in {*range(0, len(data), 509), 1, 2047, 2048, 4095, 4096, len(data) - 1}:
        files = SPECIMEN.volume({**SPECIMEN.contents, name: data[:length]})
        with pytest.raises(Damaged) as caught:
            SPECIMEN.opened(files)
        assert caught.value.path == f"{DIRECTORY}/{name}"
        assert 0 <= caught.value.position <= length


@pytest.mark.parametrize("name", SEGMENTS)
def test_a_missing_segment_is_named(name: str) -> None:
    left = {each: data for each, data in SPECIMEN.contents.items() if each != name}
    with pytest.raises(Damaged, match="missing") as caught:
        SPECIMEN.opened(SPECIMEN.volume(left))
    assert caught.value.path in (f"{DIRECTORY}/{name}", f"{DIRECTORY}/{MIDDLE}")


def renamed(old: str, new: str) -> Contents:
    made = dict(SPECIMEN.contents)
    made[new] = made.pop(old)
    return made


@pytest.mark.parametrize(
    "new",
    [
        "00000001-0000000007.segment",
        "00000002-0000000002.segment",
        "00000000-0000000002.segment",
        "copy.segment",
    ],
)
def test_a_renamed_segment_is_refused_and_kept(new: str) -> None:
    files = SPECIMEN.volume(renamed(LAST, new))
    with pytest.raises(Damaged):
        SPECIMEN.opened(files)
    assert new in files.list(DIRECTORY)


def test_segments_that_changed_places_are_refused() -> None:
    swapped = {
        **SPECIMEN.contents,
        FIRST: SPECIMEN.contents[MIDDLE],
        MIDDLE: SPECIMEN.contents[FIRST],
    }
    with pytest.raises(Damaged, match="renamed"):
        SPECIMEN.opened(SPECIMEN.volume(swapped))


def test_T5_without_a_superblock_there_is_no_replica() -> None:
    """A wiped volume under an old name cannot vote."""
    left = {name: data for name, data in SPECIMEN.contents.items() if name != "superblock"}
    assert SPECIMEN.opened(SPECIMEN.volume(left))[1] is None
    assert SPECIMEN.opened(SPECIMEN.volume({}))[1] is None
    files = SPECIMEN.volume(SPECIMEN.contents)
    files.wipe()
    assert SPECIMEN.opened(files)[1] is None


# --- somebody else's ---------------------------------------------------------------------------


@pytest.mark.parametrize(("shard", "node"), [("payments", "node-a"), ("orders", "node-b")])
def test_a_directory_of_another_shard_or_node_is_refused(shard: str, node: str) -> None:
    with pytest.raises(WrongIdentity, match="belongs to shard orders on node node-a"):
        SPECIMEN.opened(SPECIMEN.volume(SPECIMEN.contents), shard, node)


def summed_head(data: bytes) -> bytes:
    """With both copies' checksums made right."""
    copy = data[: HEAD_COPY_BYTES - 4]
    copy += sum_of(copy).to_bytes(4, "little")
    return copy + copy + data[2 * HEAD_COPY_BYTES :]


@pytest.mark.parametrize(
    ("at", "failure"),
    [(HEAD_COPY_BYTES - 2048 + 16, WrongIdentity), (8, WrongFormat), (24, Damaged)],
    ids=["another incarnation", "another format version", "another lineage"],
)
def test_a_segment_of_somebody_else_is_refused(at: int, failure: type[StorageFailure]) -> None:
    data = bytearray(SPECIMEN.contents[MIDDLE])
    data[at] += 1
    files = SPECIMEN.volume({**SPECIMEN.contents, MIDDLE: summed_head(bytes(data))})
    with pytest.raises(failure) as caught:
        SPECIMEN.opened(files)
    assert caught.value.path == f"{DIRECTORY}/{MIDDLE}"
    assert bytes(data).startswith(SEGMENT_MAGIC)


def test_a_superblock_of_another_format_version_is_refused() -> None:
    data = bytearray(SPECIMEN.contents["superblock"])
    for place in range(COPIES):
        at = place * STRIDE_BYTES
        length = int.from_bytes(data[at + 24 : at + 32], "little")
        data[at + 12] = 2
        total = sum_of(bytes(data[at + 12 : at + 32 + length]))
        data[at + 8 : at + 12] = total.to_bytes(4, "little")
    files = SPECIMEN.volume({**SPECIMEN.contents, "superblock": bytes(data)})
    with pytest.raises(WrongFormat, match="format version 2, this is 1"):
        SPECIMEN.opened(files)


def test_a_read_of_a_file_that_went_away_is_typed() -> None:
    files = SPECIMEN.volume(SPECIMEN.contents)
    store, recovered = SPECIMEN.opened(files)
    assert recovered is not None
    store.files.handles.close()
    files.remove(f"{DIRECTORY}/{LAST}")
    with pytest.raises(MissingFile):
        store.read(recovered.headers[-1])
