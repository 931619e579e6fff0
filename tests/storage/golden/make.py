"""Makes the golden replica of the format version that is current.

    PYTHONPATH=tests python tests/storage/golden/make.py v1

Run once for each version and never again for an old one: these files have to open for ever.  What
is written is the same on every run.  `expected.json` beside them says what has to be found.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shardlog.protocol.effects import (
    Recovered,
    RewriteEntry,
    Superblock,
    TrimLog,
    TruncateLog,
    WriteSuperblock,
)
from shardlog.protocol.entry import Member
from shardlog.protocol.history import History, Span
from shardlog.protocol.messages import Snapshot
from shardlog.protocol.sessions import UNNAMED_LIMITS, Session, Sessions
from shardlog.storage.store import Store
from storage.damage import contents
from storage.driver import Driver, begun
from storage.scripts import ENTRIES, base_of, end_of, epoch_2, fenced, parted
from storage.states import write

HERE = Path(__file__).parent


def replica() -> Driver:
    """Rolled, fenced, cut, continued, trimmed, damaged: a bit of everything."""
    driver = begun(ENTRIES[:8])
    driver.do(write(ENTRIES[8:12], end_of(5)))
    driver.do(fenced(2, end_of(5)))
    driver.do(TruncateLog(end_of(9)), epoch_2(10, end_of(5)))
    driver.do(write(parted(10, 8), end_of(8)))
    driver.do(WriteSuperblock(promised()))
    driver.do(TrimLog(end_of(1), ENTRIES[1].header.checksum))
    driver.rot_entry(base_of(8))
    driver.damaged_restart()
    driver.do(RewriteEntry(ENTRIES[8]))
    driver.rot_entry(base_of(9))
    driver.rot_both(*(entry.header.base for entry in parted(10, 8)[3:5]))
    driver.files.crash("all")
    return driver


def promised() -> Superblock:
    """Every field has a value."""
    history = (Span(1, 0), Span(2, base_of(10)))
    sessions = (Session(3, 9, (4, 6), 17), Session(12, 0, (), 12))
    snapshot = Snapshot(Member("node-b", 5), history, 2, 77, 30, 78, sessions)
    return Superblock(7, 2, 2, history, end_of(7), end_of(2), sessions, snapshot, 3)


def told(store: Store, recovered: Recovered) -> dict[str, Any]:
    """What was found, for `expected.json`."""
    block = recovered.superblock
    entries = [(header, store.read(header)) for header in recovered.headers]
    return {
        "superblock": json.loads(json.dumps(block_of(block))),
        "first": recovered.first,
        "boundary": recovered.boundary,
        "tail_slots": recovered.tail_slots,
        "marks": [[base, mark.name] for base, mark in recovered.marks],
        "entries": [
            [
                header.epoch,
                header.base,
                header.count,
                header.kind.name,
                header.checksum,
                None if entry is None else bytes(entry.body).decode(),
            ]
            for header, entry in entries
        ],
    }


def block_of(block: Superblock) -> dict[str, Any]:
    return {
        "incarnation": block.incarnation,
        "epoch": block.epoch,
        "led": block.led,
        "history": spans_of(block.history),
        "commit": block.commit,
        "sessions_at": block.sessions_at,
        "sessions": sessions_of(block.sessions),
        "syncing": None if block.syncing is None else snapshot_of(block.syncing),
        "in_doubt": block.in_doubt,
    }


def snapshot_of(snapshot: Snapshot) -> dict[str, Any]:
    told = asdict(snapshot) | {
        "history": spans_of(snapshot.history),
        "sessions": sessions_of(snapshot.sessions),
    }
    if snapshot.session_limits == UNNAMED_LIMITS:
        del told["session_limits"]
    return told


def sessions_of(sessions: Sessions) -> list[tuple[object, ...]]:
    """The sessions; a nonce that is not known is left out, as older versions do."""
    return [each if each.nonce else each[:4] for each in sessions]


def spans_of(history: History) -> list[tuple[int, ...]]:
    """The spans; an election that is not known is left out, as older versions do."""
    return [span if span.election else span[:2] for span in history]


def main(version: str) -> None:
    driver = replica()
    for name, data in contents(driver).items():
        (HERE / version / name).write_bytes(data)
    recovered = driver.open()
    assert recovered is not None
    text = json.dumps(told(driver.store, recovered), indent=1, sort_keys=True)
    (HERE / version / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
