"""`durability: Relaxed`: entries count once they are written, and are synced a moment later.

What is written but not synced survives the process, since the kernel has it, and is lost with the
machine.  So a mark is durable before the first entry counts like that.  It names the run of the
machine.  A start that finds it in the same run has lost nothing; in another one its log may have
held more than is found, and the replica says so: its tail is in doubt, and denies nothing (rule 13,
"lost in a sync").  Whoever stops in good order syncs first and takes the mark away.

Promises are never relaxed: whatever is written to the superblock, or changes the log otherwise, has
all entries before it synced first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardlog.storage.handles import Handles
from shardlog.storage.segment import remove

if TYPE_CHECKING:
    from shardlog.storage.replica_files import ReplicaFiles

MARK = "relaxed"
MARK_BYTES_MAX = 256
UNSYNCED_MAX = 4096
"""So many entries may count before there is a sync."""
IN_DOUBT = 2 * UNSYNCED_MAX
"""So many may be lost with the machine: a sync may find as many whose slots are still to come."""


@dataclass(frozen=True, slots=True)
class Relax:
    """Sync entries from now on only later; or, if not `relaxed`, before they count."""

    relaxed: bool


@dataclass(frozen=True, slots=True)
class Flush:
    """Sync what has been written since the last time."""


def set_relaxed(files: ReplicaFiles, relaxed: bool) -> None:
    """What was written before is synced by now."""
    if files.root is None or relaxed == files.relaxed:
        return
    path = f"{files.directory}/{MARK}"
    if relaxed:
        file = files.handles.files.create(path)
        try:
            file.write(0, [files.handles.files.machine_run().encode()])
            file.sync()
        finally:
            file.close()
    else:
        remove(files.handles, path)
    files.handles.files.sync_directory(files.directory)
    files.relaxed = relaxed


def flush(files: ReplicaFiles) -> None:
    """Segments that were removed meanwhile hold nothing that is missed."""
    there = {segment.path for segment in files.segments.items}
    for path in files.unsynced & there:
        with files.handles.use(path) as file:
            file.sync()
    files.unsynced.clear()
    files.unsynced_entries = 0


def marked_run(handles: Handles, directory: str) -> str | None:
    """The run of the machine in which entries may have been left unsynced; None if none were.

    A mark whose bytes are not there was being made: it is whole before any entry counts by it.
    """
    file = handles.files.open(f"{directory}/{MARK}", write=False)
    try:
        return file.read(0, MARK_BYTES_MAX).strip(b"\0").decode(errors="replace") or None
    finally:
        file.close()


def forget(handles: Handles, directory: str) -> None:
    remove(handles, f"{directory}/{MARK}")
    handles.files.sync_directory(directory)
