"""The replicas' disks after everybody has stopped: verified, and read without our own reader."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from click.testing import CliRunner

from faults.history import Standing, standing_of
from shardlog.cli.main import main
from shardlog.protocol.entry import Header, Kind
from shardlog.storage.inspection import Inspection, replica_directories
from shardlog.storage.layout import ENTRY_HEADER_BYTES
from shardlog.storage.real_files import RealFiles
from shardlog.transport.batch import Batch


def verified(volume: Path) -> None:
    """By the command that an operator would use."""
    result = CliRunner().invoke(main, ["storage", "verify", str(volume)])
    assert result.exit_code == 0, result.output


def records_on(volume: Path, end: int) -> tuple[list[Header], list[Standing]]:
    """Headers and records below `end`, of the only replica there."""
    files = RealFiles()
    (directory,) = replica_directories(files, str(volume))
    headers: list[Header] = []
    found: list[Standing] = []
    with closing(Inspection(files, directory)) as inspection:
        for entry in inspection.scan(bodies=True):
            header = entry.header
            if header.base >= end:
                break
            headers.append(header)
            if header.kind is Kind.DATA:
                with open(entry.path, "rb") as file:
                    file.seek(entry.position + ENTRY_HEADER_BYTES)
                    body = file.read(header.body_bytes)
                values = Batch(body, header.count).values.each()
                found += [standing_of(header.base + n, value) for n, value in enumerate(values)]
        assert not inspection.damage, inspection.damage
    return headers, found
