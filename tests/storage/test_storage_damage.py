"""`shardlog storage verify` on damaged files: each damage is told, and judged as a start does."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from shardlog.checksum import sum_of
from shardlog.cli import exit_codes
from shardlog.protocol.effects import ResetLog
from shardlog.protocol.effects import WriteSuperblock as Promise
from shardlog.protocol.log import Mark
from shardlog.storage.failures import StorageFailure
from shardlog.storage.handles import Handles
from shardlog.storage.layout import BLANK_SLOT, SLOT_BYTES, SLOTS_START, RecordType, pack_header
from shardlog.storage.real_files import RealFiles
from shardlog.storage.store import Store
from shardlog.storage.superblock import STRIDE_BYTES, SuperblockFile
from storage.replicas import (
    BLOCK,
    BODY_START,
    ENTRIES,
    FIRST,
    PLAN,
    SECOND,
    SLOTS,
    THIRD,
    Damage,
    all_bytes,
    entry_at,
    flip,
    make,
    open_store,
    perform,
    put,
    run,
    slot_at,
)

# Where the last entry stands in the last segment.
LAST_AT = BODY_START + sum(80 + len(entry.body) for entry in ENTRIES[16:19])


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    return make(tmp_path / "orders")


# --- damage --------------------------------------------------------------------------------------


def cut_short(replica: Path) -> None:
    path = replica / SECOND
    path.write_bytes(path.read_bytes()[:5000])


def no_bytes(replica: Path) -> None:
    (replica / "superblock").write_bytes(b"")


def both_heads(replica: Path) -> None:
    flip(replica / SECOND, 100)
    flip(replica / SECOND, 2048 + 100)


def superblocks(*places: int) -> Damage:
    def damage(replica: Path) -> None:
        for place in places:
            flip(replica / "superblock", place * STRIDE_BYTES + 40)

    return damage


def slot_and_entry(replica: Path) -> None:
    flip(replica / FIRST, slot_at(3))
    flip(replica / FIRST, entry_at(3))


def tail(replica: Path) -> None:
    put(replica / THIRD, slot_at(3), b"\xff" * SLOT_BYTES)
    put(replica / THIRD, LAST_AT, bytes(256))


def swapped(replica: Path) -> None:
    one, other = (replica / name for name in (FIRST, SECOND))
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


DAMAGE: list[tuple[Damage, str, int, str, str]] = [
    (lambda at: flip(at / FIRST, entry_at(2) + 90), FIRST, entry_at(2) + 80,
     "the body of (1,3) is damaged", "repairable from another replica"),
    (lambda at: flip(at / FIRST, entry_at(2) + 20), FIRST, entry_at(2),
     "the header of (1,3) is damaged", "repairable from another replica"),
    (lambda at: flip(at / FIRST, slot_at(2) + 9), FIRST, slot_at(2),
     "the slot of (1,3) is damaged", "written again at the next start"),
    (slot_and_entry, FIRST, slot_at(3),
     "offsets [5, 7) cannot be read: neither slots nor entries", "repairable from another replica"),
    (tail, THIRD, slot_at(3),
     "nothing can be read from offset 37 on: up to 1 entries", "repairable from another replica"),
    (lambda at: flip(at / SECOND, 5), SECOND, 0,
     "a copy of the segment's head is damaged", "written again at the next start"),
    (lambda at: flip(at / SECOND, 2048), SECOND, 2048,
     "a copy of the segment's head is damaged", "written again at the next start"),
    (both_heads, SECOND, 0,
     "neither copy of the segment's head can be read", "the replica must be replaced"),
    (cut_short, SECOND, 5000,
     "the file was cut short: it had 8192 bytes", "the replica must be replaced"),
    (lambda at: (at / SECOND).unlink(), THIRD, 0,
     "segment 1, the one before, is missing", "the replica must be replaced"),
    (lambda at: (at / THIRD).unlink(), THIRD, 0,
     "it is missing", "the replica must be replaced"),
    (lambda at: (at / FIRST).unlink(), SECOND, 0,
     "the segment with offset 0 is missing", "the replica must be replaced"),
    (swapped, FIRST, 0, "the file was renamed", "the replica must be replaced"),
    (superblocks(0), "superblock", 0,
     "copy 1 of 4 of the superblock is torn or damaged", "written again at the next start"),
    (superblocks(0, 2), "superblock", 2 * STRIDE_BYTES,
     "copy 3 of 4 of the superblock is torn or damaged", "written again at the next start"),
    (superblocks(2, 3), "superblock", 2 * STRIDE_BYTES,
     "two copies, perhaps of a newer superblock, are lost", "the replica must be replaced"),
    (superblocks(0, 1, 2, 3), "superblock", 0,
     "no copy of the superblock can be read", "the replica must be replaced"),
    (no_bytes, "superblock", 0,
     "the file was cut short", "the replica must be replaced"),
    (lambda at: (at / "superblock").unlink(), "superblock", 0,
     "there is no superblock: it is lost, or the replica was being erased",
     "the replica must be replaced"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "name", "position", "what", "consequence"), DAMAGE)
def test_damage(
    replica: Path, damage: Damage, name: str, position: int, what: str, consequence: str
):
    damage(replica)
    before = all_bytes(replica)
    result = run("verify", replica)
    assert f"{replica}/{name}:{position}: {what}; {consequence}\n" in result.stdout
    assert result.exit_code == exit_codes.DAMAGED
    assert "damaged (" in result.stdout.splitlines()[-1]
    assert result.stderr == ""
    assert run("inspect", replica).exit_code == exit_codes.OK
    assert run("inspect", replica, "--entries", "-o", "json").exit_code == exit_codes.OK
    assert all_bytes(replica) == before


def test_one_damage_is_one_line(replica: Path):
    for damage, *_ in DAMAGE[:7]:
        shutil.rmtree(replica)
        damage(make(replica))
        assert len(run("verify", replica).stdout.splitlines()) == 2


def test_states_are_listed(replica: Path):
    flip(replica / FIRST, entry_at(2) + 90)
    slot_and_entry(replica)
    tail(replica)
    lines = run("inspect", replica, "--entries").stdout.splitlines()
    listed = [" ".join(line.split()) for line in lines]
    assert [row.split()[-1] for row in listed if row.startswith("1 3 ")] == ["corrupt"]
    assert "1 5 2 - - - - - fault" in listed
    assert "1 37 ? - - - - - fault" in listed


def test_a_slot_below_the_tail_is_not_needed(replica: Path):
    store = open_store(replica)
    block = replace(BLOCK, commit=ENTRIES[9].header.end, sessions_at=ENTRIES[9].header.end)
    perform(store, Promise(block))
    flip(replica / FIRST, slot_at(2))
    assert "the slot of (1,3) is damaged; its entry is found without it" in (
        run("verify", replica).stdout
    )


def test_a_record_that_has_no_place_among_the_slots(replica: Path):
    data = bytearray((replica / FIRST).read_bytes()[slot_at(3) : slot_at(4)])
    data[0] = RecordType.FENCED
    data[-4:] = sum_of(data[:-4]).to_bytes(4, "little")
    put(replica / FIRST, slot_at(3), bytes(data))
    what = "a record of type 6, which has no place here; the replica must be replaced"
    assert f"{FIRST}:{slot_at(3)}: {what}\n" in run("verify", replica).stdout


def test_a_renamed_segment_is_no_left_over(replica: Path):
    (replica / THIRD).rename(replica / THIRD.replace("00000001-", "00000000-"))
    told = run("verify", replica).stdout
    assert "the file was renamed; the replica must be replaced" in told
    assert f"{THIRD}:0: it is missing" in told


def test_a_context_that_contradicts_the_log(replica: Path):
    path = replica / THIRD
    data = bytearray(path.read_bytes()[slot_at(3) : slot_at(4)])
    data[31] ^= 1
    data[-4:] = sum_of(data[:-4]).to_bytes(4, "little")
    put(path, slot_at(3), bytes(data))
    told = run("verify", replica)
    assert told.exit_code == exit_codes.DAMAGED
    assert "commit context" in told.stdout


def test_every_flip_is_found_and_judged_as_recovery_does(tmp_path: Path):
    """One flipped bit anywhere that matters: told, with what a start makes of it."""
    healthy = make(tmp_path / "healthy", 4)
    random = Random(1)
    used = entry_at(4)
    positions = [
        *range(0, 4096, 97),
        *range(SLOTS_START, slot_at(4), 13),
        *range(BODY_START, used, 7),
    ]
    for position in positions:
        damaged = tmp_path / "damaged"
        shutil.copytree(healthy, damaged)
        put(
            damaged / FIRST,
            position,
            bytes([random.randrange(1, 256) ^ byte_at(damaged, position)]),
        )
        told = run("verify", damaged, "-o", "json")
        assert told.exit_code == exit_codes.DAMAGED, position
        assert marks_told(damaged) == marks_recovered(damaged), position
        assert run("verify", damaged).exit_code in (exit_codes.OK, exit_codes.DAMAGED)
        shutil.rmtree(damaged)


@pytest.mark.parametrize("seed", range(40))
def test_much_damage_at_once(replica: Path, seed: int):
    random = Random(seed)
    for _ in range(random.randrange(1, 6)):
        path = replica / random.choice([FIRST, SECOND, THIRD])
        index = random.randrange(SLOTS)
        kind = random.choice(["flip slot", "blank slot", "flip entry", "blank entries"])
        if kind == "flip slot":
            flip(path, slot_at(index) + random.randrange(SLOT_BYTES))
        elif kind == "blank slot":
            put(path, slot_at(index), BLANK_SLOT)
        elif kind == "flip entry":
            flip(path, random.randrange(BODY_START, BODY_START + 900))
        else:
            put(path, random.randrange(BODY_START, BODY_START + 900), bytes(200))
    before = all_bytes(replica)
    told = marks_told(replica)
    damaged = run("verify", replica).exit_code == exit_codes.DAMAGED
    assert all_bytes(replica) == before
    try:
        recovered = marks_recovered(replica)
    except StorageFailure:
        assert damaged
        return
    assert told == recovered
    assert damaged or set(told.values()) == {"present"}


def byte_at(replica: Path, position: int) -> int:
    return (replica / FIRST).read_bytes()[position]


def marks_told(replica: Path) -> dict[int, str]:
    (told,) = json.loads(run("inspect", replica, "-o", "json", "--entries").stdout)["replicas"]
    return {it["offset"]: it["state"] for it in told["entries"] if it["state"] != "blank"}


def marks_recovered(replica: Path) -> dict[int, str]:
    """What a start says; it mends, so it comes last."""
    _, recovered = Store.open(Handles(RealFiles()), str(replica), "orders", "n1", PLAN)
    assert recovered is not None
    marks = dict(recovered.marks)
    return {
        header.base: marks.get(header.base, Mark.PRESENT).name.lower()
        for header in recovered.headers
    }


# --- what a crash leaves -------------------------------------------------------------------------


def unslotted(replica: Path) -> None:
    put(replica / THIRD, slot_at(3), BLANK_SLOT)


def torn(replica: Path) -> None:
    unslotted(replica)
    header = ENTRIES[19].header
    data = (replica / THIRD).read_bytes()
    flip(replica / THIRD, data.index(pack_header(header, 59)) + 100)


def earlier_log(replica: Path) -> None:
    """The log was started over, and a crash came before the old one was removed."""
    data = (replica / FIRST).read_bytes()
    perform(open_store(replica), ResetLog(50, 7))
    (replica / FIRST).write_bytes(data)


def half_made(replica: Path) -> None:
    (replica / "making.segment").write_bytes(bytes(100))


def cut(replica: Path) -> None:
    """A cut that was announced and begun, but not finished."""
    superblock = SuperblockFile(RealFiles(), str(replica))
    superblock.write(replace(superblock.load(), cut_to=ENTRIES[17].header.end))
    put(replica / THIRD, slot_at(2), BLANK_SLOT)
    flip(replica / THIRD, slot_at(3))


@pytest.mark.parametrize(
    ("crash", "told"),
    [
        (unslotted, "the slot of (1,37) is not written; finished at the next start"),
        (torn, "a write that was cut short, and never acknowledged; removed at the next start"),
        (earlier_log, "left over from an earlier log; removed at the next start"),
        (half_made, "left over from an earlier log; removed at the next start"),
        (cut, "a cut to offset 35 is under way; finished at the next start"),
    ],
)
def test_left_by_a_crash(replica: Path, crash: Damage, told: str):
    crash(replica)
    before = all_bytes(replica)
    result = run("verify", replica)
    assert result.exit_code == exit_codes.OK
    assert len(result.stdout.splitlines()) == 2
    assert told in result.stdout
    assert "all is well (1 " in result.stdout
    assert run("inspect", replica, "--entries").exit_code == exit_codes.OK
    assert all_bytes(replica) == before
    open_store(replica)
    assert run("verify", replica).stdout.endswith("all is well\n")
