"""Who is at work on a shard's snapshots, so that nobody collects what another is about to name.

Whoever creates leaves a mark before it looks which segments there are, and whoever collects leaves
one before it looks who creates.  So of two that begin at once one at least sees the other: a
collector that sees a creator collects nothing, and a creator that sees a collector waits for it.

A process that dies leaves its mark behind.  Marks are put anew every so often, and one that was not
for `STALE_S`, by the clock of whoever keeps them, is of a dead one and is removed.  Should a
creator be only asleep, it finds its mark gone when it has put its manifest, and takes that back:
who removed the mark may have looked for manifests before.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from shardlog.snapshots.archive import Archive
from shardlog.snapshots.destination import Found
from shardlog.snapshots.failures import DestinationBusy, SnapshotFailure

REFRESH_S = 30.0
STALE_S = 900.0
WAIT_S = 60.0
LOOK_S = 0.2


class Work(Enum):
    """What a mark is of."""

    CREATING = "creating"
    COLLECTING = "collecting"


class Mark:
    """Ours, put anew for as long as it is held."""

    def __init__(self, archive: Archive, work: Work, id_: str) -> None:
        self._archive = archive
        self.name = f"{archive.directory}/running/{work.value}-{id_}.json"
        self._document = json.dumps({"work": work.value, "id": id_}).encode()
        self._done = threading.Event()
        self._tending = threading.Thread(target=self._tend, daemon=True, name="snapshot mark")
        self._refreshed = 0.0
        self._lapsed = False

    def put(self) -> None:
        self._refreshed = time.monotonic()
        self._archive.destination.put(self.name, self._document)
        self._tending.start()

    def _tend(self) -> None:
        while not self._done.wait(REFRESH_S):
            self.refresh()

    def refresh(self) -> None:
        """A mark that somebody has removed, or may have removed meanwhile, stays so."""
        try:
            if self.is_fresh and self.is_there():
                self._archive.destination.put(self.name, self._document)
                self._lapsed = not self.is_fresh
                self._refreshed = time.monotonic()
        except SnapshotFailure:
            return  # the next time, or it is stale and somebody says so

    @property
    def is_fresh(self) -> bool:
        """Whether nobody can have taken it for a dead one's."""
        return not self._lapsed and time.monotonic() - self._refreshed < STALE_S / 2

    def is_there(self) -> bool:
        return any(each.name == self.name for each in marks(self._archive))

    def remove(self) -> None:
        self._done.set()
        if self._tending.is_alive():
            self._tending.join()
        self._archive.destination.delete(self.name)


def marks(archive: Archive) -> list[Found]:
    return archive.destination.list(f"{archive.directory}/running/")


def others(archive: Archive, mine: Mark, work: Work) -> list[Found]:
    """Those who live; what the dead left is removed."""
    found = marks(archive)
    now = max((each.modified for each in found), default=None)
    living = []
    for each in found:
        if each.name == mine.name or not _kind(each.name).startswith(work.value):
            continue
        assert now is not None
        if (now - each.modified).total_seconds() > STALE_S:
            archive.destination.delete(each.name)
        else:
            living.append(each)
    return living


def _kind(name: str) -> str:
    return name.rpartition("/")[2]


@contextmanager
def creating(archive: Archive, id_: str, wait_s: float = WAIT_S) -> Iterator[Mark]:
    """Once nobody collects."""
    with _held(Mark(archive, Work.CREATING, id_)) as mark:
        deadline = time.monotonic() + wait_s
        while found := others(archive, mark, Work.COLLECTING):
            if time.monotonic() > deadline:
                raise DestinationBusy(
                    f"{archive.url}: segments are being collected since {found[0].modified:%c}; "
                    f"{found[0].name} says so"
                )
            time.sleep(LOOK_S)
        yield mark


@contextmanager
def collecting(archive: Archive, id_: str) -> Iterator[Mark | None]:
    """None if somebody creates: then nothing may be collected now."""
    with _held(Mark(archive, Work.COLLECTING, id_)) as mark:
        yield None if others(archive, mark, Work.CREATING) else mark


@contextmanager
def _held(mark: Mark) -> Iterator[Mark]:
    mark.put()
    try:
        yield mark
    finally:
        mark.remove()
