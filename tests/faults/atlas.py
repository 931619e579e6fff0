"""How much may be damaged at once so that nothing is out of reach for good.

The disks themselves are asked, not a ledger of what was done: an entry may be hit on one node if
others have a good copy of it at this moment.  A replication quorum of them, where the hit is such
that the whole replica may have to be replaced, or looks like something that was never written; one
of them for bytes that are plainly bad.  A whole replica may be lost while all others are whole.
Where both copies of a header go nobody can tell how far a tail reached, so that needs a quorum too.

What no file format could survive is left out: a slot and its entry that are both made to look as if
they had never been written, and a superblock of which neither the newest copies are left nor those
that would show that there is no newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from faults.damage import Blow
from faults.live_files import LiveFiles, live_files
from shardlog.protocol.entry import Header
from shardlog.storage.failures import StorageFailure


class Atlas:
    """`volumes` of the members of a shard, and its replication quorum."""

    def __init__(self, volumes: dict[str, Path], quorum: int) -> None:
        self.volumes = volumes
        self.quorum = quorum

    def permits(
        self, node: str, files: LiveFiles, blows: Sequence[Blow], copies_min: int = 1
    ) -> bool:
        """Whether `node`, whose files stand still, may be struck so."""
        if not all(self._bearable(files, blow, len(blows) > 1) for blow in blows):
            return False
        if any(blow.contradicts for blow in blows) and not self.others_whole(node, files.end()):
            return False
        forgotten = len(blows) > 1 or any(blow.blanks for blow in blows)
        copies = self.quorum if forgotten else copies_min
        entries = {header for blow in blows for header in (*blow.entries, *blow.slots)}
        return self._spare(node, entries, copies)

    def others_whole(self, node: str, end: int) -> bool:
        """Whether everybody else has everything up to `end`, without a flaw."""
        return all(self._whole(volume, end) for volume in self._others(node))

    def _whole(self, volume: Path, end: int) -> bool:
        with live_files(volume) as files:
            if files is None or files.root.superblock.syncing is not None:
                return False
            try:
                return files.end() >= end and files.whole()
            except StorageFailure:
                return False  # its files are others by now

    def _others(self, node: str) -> list[Path]:
        return [volume for name, volume in self.volumes.items() if name != node]

    # --- on the node itself ----------------------------------------------------------------------

    def _bearable(self, files: LiveFiles, blow: Blow, told_apart: bool) -> bool:
        if blow.superblock_copy is not None:
            return self._superblock_left(files, blow.superblock_copy)
        if blow.heads:
            return not any(it.path == blow.path for it in files.inspection.findings)
        if blow.blanks and blow.slots:
            return all(files.holds(header) for header in blow.slots)
        if told_apart:
            return True
        return all(self._slotted(files, header) for header in blow.entries)

    def _superblock_left(self, files: LiveFiles, hit: int) -> bool:
        """One of the newest copies is left, and one of those that the next root goes to."""
        states = {place.number: place.state for place in files.inspection.places}
        newest = [number for number, state in states.items() if state == "newest"]
        pair = {0, 1} if newest[0] < 2 else {2, 3}
        readable = {number for number, state in states.items() if state != "lost"} - {hit}
        return bool(set(newest) - {hit}) and bool(readable - pair)

    def _slotted(self, files: LiveFiles, header: Header) -> bool:
        place = files.place(header.base)
        return place is not None and place.slotted

    # --- on the others ---------------------------------------------------------------------------

    def _spare(self, node: str, entries: Iterable[Header], copies: int) -> bool:
        with ExitStack() as stack:
            others = [stack.enter_context(live_files(it)) for it in self._others(node)]
            there = [files for files in others if files is not None]
            return all(sum(files.holds(header) for files in there) >= copies for header in entries)
