"""The replicas' disks after everybody has stopped: verified, and read without our own reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from click.testing import CliRunner

from faults.history import Standing, standing_of
from shardlog.cli.main import main
from shardlog.protocol.entry import Header, Kind
from shardlog.protocol.sessions import Sessions, SessionTable
from shardlog.storage.inspection import Inspection, replica_directories
from shardlog.storage.layout import ENTRY_HEADER_BYTES, Context
from shardlog.storage.real_files import RealFiles
from shardlog.storage.root import Root
from shardlog.transport.batch import Batch


def verified(volume: Path) -> None:
    """By the command that an operator would use."""
    result = CliRunner().invoke(main, ["storage", "verify", str(volume)])
    assert result.exit_code == 0, result.output


@dataclass(slots=True)
class OnDisk:
    """The only replica on a volume: its entries in order, their bytes summed, and its records.

    `root` is what its superblock says, and `context` the commit context that rode along last.
    """

    root: Root
    context: Context = Context(0, 0)
    headers: list[Header] = field(default_factory=list)
    sums: list[bytes] = field(default_factory=list)
    records: list[Standing] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.headers[-1].end if self.headers else self.root.first

    def records_below(self, end: int) -> list[Standing]:
        return [record for record in self.records if record.offset < end]

    def sessions_at(self, end: int) -> Sessions:
        """The table that this replica would have when it has applied everything below `end`."""
        block = self.root.superblock
        table = SessionTable.at(block.sessions_at, block.sessions, block.session_limits)
        table.fold(header for header in self.headers if table.applied <= header.base < end)
        return table.at_rest()


def read_disk(volume: Path) -> OnDisk:
    """Everything there, by the bytes in its files."""
    files = RealFiles()
    (directory,) = replica_directories(files, str(volume))
    with closing(Inspection(files, directory)) as inspection:
        assert inspection.root is not None
        disk = OnDisk(inspection.root)
        for entry in inspection.scan(bodies=True):
            header = entry.header
            with open(entry.path, "rb") as file:
                file.seek(entry.position)
                data = file.read(ENTRY_HEADER_BYTES + header.body_bytes)
            disk.headers.append(header)
            disk.sums.append(blake2b(data).digest())
            if header.kind is Kind.DATA:
                values = Batch(data[ENTRY_HEADER_BYTES:], header.count).values.each()
                disk.records += [
                    standing_of(header.base + n, value) for n, value in enumerate(values)
                ]
        assert not inspection.damage, inspection.damage
        disk.context = inspection.context
    return disk


def differences(disks: Mapping[str, OnDisk]) -> Iterator[str]:
    """Between replicas, as far as all of them reach: entries, bytes, sessions, commit contexts."""
    (name, first), *others = disks.items()
    end = min(disk.end for disk in disks.values())
    known = {header.end: header.checksum for header in first.headers}
    for other, disk in others:
        pairs = zip(first.headers, first.sums, disk.headers, disk.sums, strict=False)
        for header, mine, theirs, sum_ in pairs:
            if header != theirs or mine != sum_:
                yield f"{name} has {header} and {other} has {theirs}, or other bytes in it"
                break
        if first.sessions_at(end) != disk.sessions_at(end):
            yield f"{name} and {other} have different sessions"
    for other, disk in disks.items():
        ended = known.get(disk.context.end)
        if disk.context.end and ended is not None and ended != disk.context.checksum:
            yield f"the commit context of {other} is of another log: {disk.context}"
