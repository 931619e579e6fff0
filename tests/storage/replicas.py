"""A replica's directory on the real disk, to be looked at and to be damaged."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner, Result

from shardlog.checksum import seal, seal_body
from shardlog.cli.main import main
from shardlog.protocol.effects import Disk, Format, Superblock, WriteEntries
from shardlog.protocol.effects import WriteSuperblock as Promise
from shardlog.protocol.entry import Entry, Kind, sealed
from shardlog.protocol.history import Span
from shardlog.storage.handles import Handles
from shardlog.storage.layout import SLOT_BYTES, SLOTS_START
from shardlog.storage.plan import Plan
from shardlog.storage.real_files import RealFiles
from shardlog.storage.store import Store

SLOTS = 8
PLAN = Plan(size_min=8192, size_max=8192, slots_min=SLOTS, slots_max=SLOTS, zeroed_bytes=1024)
BODY_START = SLOTS_START + SLOTS * SLOT_BYTES
FIRST, SECOND, THIRD = (f"00000001-000000000{number}.segment" for number in range(3))
BLOCK = Superblock(7, 1, 0, (Span(1, 0),), 0, 0, (), None)


def entries(count: int) -> list[Entry]:
    made: list[Entry] = []
    base = parent = 0
    for number in range(count):
        body = bytes([65 + number]) * (40 + number)
        count_, kind = (1, Kind.EPOCH_START) if number == 0 else (2, Kind.DATA)
        time = 1_700_000_000_000 + number
        header = sealed(
            seal, 1, base, count_, kind, 0, number, time, parent, seal_body(body)
        )  # fmt: skip
        made.append(Entry(header, body))
        base, parent = header.end, header.checksum
    return made


ENTRIES = entries(20)


def perform(store: Store, *effects: Disk) -> None:
    for effect in effects:
        store.submit(effect)
        while (round_ := store.take()) is not None:
            round_.write()
            round_.sync()
            store.finish(round_)


def open_store(directory: Path) -> Store:
    return Store.open(Handles(RealFiles()), str(directory), "orders", "n1", PLAN)[0]


def make(directory: Path, count: int = 20) -> Path:
    """Segments of eight entries; the superblock knows of no commit, the slots of some.

    The newest superblock stands in the first two places.
    """
    store = open_store(directory)
    perform(store, Format(replace(BLOCK, epoch=0, history=())), Promise(BLOCK))
    for at, entry in enumerate(ENTRIES[:count]):
        committed = ENTRIES[at - 2].header.end if at > 2 else 0
        perform(store, WriteEntries((entry,), committed))
    while store.files.superblocks.sequence % 2 == 0:
        perform(store, Promise(BLOCK))
    store.files.handles.close()
    return directory


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["storage", *map(str, args)])


def flip(path: Path, position: int, length: int = 1) -> None:
    data = bytearray(path.read_bytes())
    for at in range(position, position + length):
        data[at] ^= 0x40
    path.write_bytes(data)


def put(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


Damage = Callable[[Path], None]


def slot_at(index: int) -> int:
    return SLOTS_START + index * SLOT_BYTES


def entry_at(index: int) -> int:
    """Where the entry of slot `index` stands in the first segment."""
    return BODY_START + sum(80 + len(entry.body) for entry in ENTRIES[:index])


def all_bytes(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Every file, and when it was written last."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
    }
