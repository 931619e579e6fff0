"""The tables of docs/storage-format.md against the code: layouts, and what stands in each field."""

import re
import struct
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from shardlog.checksum import seal, sum_of
from shardlog.protocol.effects import Superblock
from shardlog.protocol.entry import Kind, Member, sealed
from shardlog.protocol.history import Span
from shardlog.protocol.messages import Membership, Snapshot
from shardlog.protocol.sessions import Session, SessionLimits
from shardlog.storage import layout, relaxing, superblock
from shardlog.storage.layout import Context, Head, RecordType, Slot
from shardlog.storage.movement import Record
from shardlog.storage.plan import Plan
from shardlog.storage.root import Root, pack_root
from shardlog.storage.segment import GROUP_BYTES_MAX, MAKING, name_of
from shardlog.storage.spares import PREFIX

DOCUMENT = (Path(__file__).parents[2] / "docs" / "storage-format.md").read_text()


def table(heading: str) -> list[dict[str, str]]:
    """The first table under a heading, a row as its cells by column."""
    _, _, rest = DOCUMENT.partition(f"# {heading}\n")
    lines = rest.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("|"))
    assert not any(line.startswith("#") for line in lines[:start]), heading
    found = takewhile(lambda line: line.startswith("|"), lines[start:])
    columns, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found]
    return [dict(zip(columns, row, strict=True)) for row in rows]


@dataclass(frozen=True)
class Field:
    offset: int
    size: int
    name: str

    def of(self, data: bytes) -> bytes:
        return data[self.offset : self.offset + self.size]

    def number(self, data: bytes) -> int:
        return int.from_bytes(self.of(data), "little")


def fields(heading: str) -> list[Field]:
    """The rows with a size of their own; those behind have a length that is told elsewhere."""
    return [
        Field(int(row["offset"]), int(row["size"]), row["field"])
        for row in table(heading)
        if row["size"].isdecimal()
    ]


def members(form: str) -> list[tuple[int, int]]:
    """Offset and size of everything in the format of a `struct`."""
    found, offset = [], 0
    for count, code in re.findall(r"(\d*)([a-zA-Z])", form):
        whole = code in "sx"
        size = struct.calcsize(f"<{count}{code}" if whole else f"<{code}")
        for _ in range(1 if whole else int(count or 1)):
            found.append((offset, size))
            offset += size
    return found


HEADER = sealed(seal, 3, 40, 5, Kind.REGISTER, 6, 7, 8, 9, 11 << 32 | 10)
SLOT = Slot(HEADER, 11, 4096 + 12, Context(13, 14))
HEAD = Head("orders", 15, 16, 17, 18, 19, 20, 21)
ROOT = Root(
    "orders", "n1", 2, 3, 4, 5, 6,
    Superblock(
        7, 8, 9, (Span(10, 11, 44), Span(12, 13, 45)), 14, 15,
        (Session(16, 17, (18, 19), 20, 52), Session(21, 22, (), 23, 53)),
        Snapshot(
            Member("n2", 24), (Span(25, 26, 46),), 27, 28, 29, 30,
            (Session(31, 32, (33,), 34, 54),), SessionLimits(55, 56, 57),
        ),
        35, 47, Membership(48, 49, (Member("n3", 50), Member("n4", 51))), SessionLimits(58, 59, 60),
    ),
    (Record(36, RecordType.CHECKPOINT, 37, 38, 39), Record(40, RecordType.EPOCH_END, 41, 42, 43)),
)  # fmt: skip


# --- offsets and sizes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "form"),
    [
        ("One copy", superblock._PREFIX.format),
        ("A slot", layout.SLOT.format),
        ("An entry", layout.ENTRY_HEADER.format),
        ("One copy of the head", layout.HEAD.format + "1972s" + "I"),
    ],
)
def test_layout(heading: str, form: str):
    assert [(each.offset, each.size) for each in fields(heading)] == members(form)


def test_what_follows_stands_right_behind():
    sizes = {"One copy": superblock._PREFIX.size, "An entry": layout.ENTRY_HEADER_BYTES}
    for heading, size in sizes.items():
        last = table(heading)[-1]
        assert (last["offset"], last["size"]) == (str(size), "length")


def test_sizes():
    assert layout.SLOT_BYTES == sum(each.size for each in fields("A slot")) == 128
    assert sum(each.size for each in fields("One copy of the head")) == layout.HEAD_COPY_BYTES
    parts = {row["part"]: (row["from"], row["to"]) for row in table("Segments")}
    assert parts["head"] == ("0", str(layout.SLOTS_START))
    body = f"{layout.SLOTS_START} + {layout.SLOT_BYTES} \u00d7 slots"
    assert parts["slots"] == (str(layout.SLOTS_START), body)
    assert parts["entries"] == (body, "size")
    assert HEAD.body_start == layout.SLOTS_START + layout.SLOT_BYTES * HEAD.slots


# --- what stands in each field -------------------------------------------------------------------


def checked(heading: str, data: bytes, expected: dict[str, int | bytes]) -> None:
    for field in fields(heading):
        if field.name == "zero":
            assert not any(field.of(data)), field
        else:
            value = expected.pop(field.name)
            found = field.of(data) if isinstance(value, bytes) else field.number(data)
            assert found == value, field
    assert not expected


def header_values() -> dict[str, int | bytes]:
    known = HEADER._asdict()
    crc = HEADER.body_checksum % 2**32
    told = {"magic": b"SE", "version": layout.FORMAT_VERSION, "length": 11, "body_checksum": crc}
    return {**known, **told}


def test_entry():
    checked("An entry", layout.pack_header(HEADER, 11), header_values())


def test_slot():
    data = layout.pack_slot(SLOT, 22, layout.slot_sequence(3, 4))
    expected: dict[str, int | bytes] = {
        "type": RecordType.ENTRY, "lineage": 22, "sequence": 3 * 2**24 + 4, "position": 4108,
        "context_end": 13, "context_checksum": 14, "header": layout.pack_header(HEADER, 11),
        "checksum": sum_of(data[:124]),
    }  # fmt: skip
    checked("A slot", data, expected)


def test_head():
    data = layout.pack_head(HEAD)
    known = asdict(HEAD)
    del known["shard"]
    expected = {
        **known, "magic": b"SHARDSEG", "version": layout.FORMAT_VERSION, "name_length": 6,
        "name": b"orders".ljust(1972, b"\0"), "checksum": sum_of(data[:2044]),
    }  # fmt: skip
    checked("One copy of the head", data, expected)


def test_superblock_copy():
    root = pack_root(ROOT)
    data = superblock._packed(5, root)
    expected: dict[str, int | bytes] = {
        "magic": b"SHARDSUP", "checksum": sum_of(data[12 : 32 + len(root)]),
        "version": layout.FORMAT_VERSION, "sequence": 5, "length": len(root),
    }  # fmt: skip
    checked("One copy", data, expected)
    assert data[32 : 32 + len(root)] == root
    assert not any(data[32 + len(root) :])
    assert superblock.STRIDE_BYTES == 8192


# --- the root, read by the document alone --------------------------------------------------------


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def read(self, kind: str) -> Any:
        if kind == "u64":
            self.at += 8
            return int.from_bytes(self.data[self.at - 8 : self.at], "little")
        if kind == "text":
            length = self.read("u64")
            self.at += length
            return self.data[self.at - length : self.at].decode()
        form, _, item = kind.rpartition(" ")
        if form == "list of":
            return [self.read(item) for _ in range(self.read("u64"))]
        if form == "optional":
            return self.read(item) if self.read("u64") else None
        return {row["field"]: self.read(row["type"]) for row in table(kind)}


def test_root():
    reader = Reader(pack_root(ROOT))
    found = reader.read("The root")
    assert reader.at == len(reader.data)
    block = ROOT.superblock
    assert found.pop("cut_to") == 6
    assert found.pop("history") == [{"epoch": 10, "first": 11}, {"epoch": 12, "first": 13}]
    assert (found.pop("elections"), found.pop("syncing_elections")) == ([44, 45], [46])
    membership = found.pop("membership")
    assert block.membership is not None
    assert membership.pop("ensemble") == [each._asdict() for each in block.membership.ensemble]
    assert membership == {"epoch": 48, "election": 49}
    assert (found.pop("nonces"), found.pop("syncing_nonces")) == ([52, 53], [54])
    limits = found.pop("session_limits"), found.pop("syncing_session_limits")
    assert block.syncing is not None
    assert limits == (block.session_limits._asdict(), block.syncing.session_limits._asdict())
    assert found.pop("records") == [asdict(record) for record in ROOT.records]
    assert found.pop("sessions") == [as_told(session) for session in block.sessions]
    syncing = found.pop("syncing")
    assert block.syncing is not None
    assert syncing.pop("history") == [{"epoch": 25, "first": 26}]
    assert syncing.pop("sessions") == [as_told(session) for session in block.syncing.sessions]
    assert (syncing.pop("node"), syncing.pop("incarnation")) == block.syncing.source
    assert all(value == getattr(block.syncing, name) for name, value in syncing.items())
    for name, value in found.items():
        assert value == getattr(ROOT if hasattr(ROOT, name) else block, name), name


def as_told(session: Session) -> dict[str, Any]:
    told = {**session._asdict(), "replies": list(session.replies)}
    del told["nonce"]
    return told


def test_record_types():
    told = {row["type"]: int(row["value"]) for row in table("Record types")}
    assert told == {each.name: each.value for each in RecordType}


# --- names and limits ----------------------------------------------------------------------------


def test_names():
    names = [row["name"].strip("`") for row in table("The directory")]
    assert names[0] == superblock.NAME
    assert re.sub(r"[LN]", "0", names[2]) == name_of(0, 0)
    assert names[3] == relaxing.MARK
    assert names[4] == MAKING
    assert names[5] == f"{PREFIX}N"
    assert len(names) == 6


def test_limits():
    told = {row["what"]: row["at most"] for row in table("Limits")}
    plan = Plan()
    assert f"{plan.slots_max:,} are made" in told["slots in a segment"]
    assert f"{2**24:,} by the format" in told["slots in a segment"]
    assert f"{plan.size_max >> 20} MiB" in told["a segment"]
    assert f"first has {plan.size_min >> 10} KiB" in told["a segment"]
    assert f"At most {GROUP_BYTES_MAX >> 20} MiB of entries" in DOCUMENT
