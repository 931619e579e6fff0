"""The files of one replica, and what is known of them: shared by those who write and who read."""

from __future__ import annotations

from dataclasses import replace

from shardlog.storage.handles import Handles
from shardlog.storage.layout import Context
from shardlog.storage.opening import Opened
from shardlog.storage.plan import Plan
from shardlog.storage.root import Root
from shardlog.storage.segment import Segment
from shardlog.storage.segments import Segments
from shardlog.storage.superblock import SuperblockFile


class ReplicaFiles:
    """`root` is what the superblock holds, durably; None if there is no replica.

    `copies_mended` counts superblocks and heads that were damaged and written again.
    """

    def __init__(
        self,
        handles: Handles,
        directory: str,
        shard: str,
        node: str,
        plan: Plan,
        found: Opened | None,
    ) -> None:
        self.handles = handles
        self.directory = directory
        self.shard = shard
        self.node = node
        self.plan = plan
        self.root: Root | None = None
        self.context = Context(0, 0)
        self.copies_mended = 0
        # Whether entries count before they are synced, and the files in which such entries stand;
        # and how many there are, at most.
        self.relaxed = False
        self.unsynced: set[str] = set()
        self.unsynced_entries = 0
        self.clear()
        if found is not None:
            self.root, self.context = found.root, found.context
            self.superblocks, self.segments = found.superblocks, found.segments

    def clear(self) -> None:
        """Nothing is known, because nothing is there."""
        self.root = None
        self.relaxed = False
        self.unsynced.clear()
        self.unsynced_entries = 0
        self.context = Context(0, 0)
        self.superblocks = SuperblockFile(self.handles.files, self.directory)
        self.segments = Segments(self.handles, self.directory)

    def write_root(self, root: Root) -> None:
        self.superblocks.write(root)
        self.root = root

    def add_segment(self, first: int, length: int, lost: int = 0) -> Segment:
        """A new last segment; see `Segments.extend`."""
        assert self.root is not None
        made = self.segments.extend(self.root, self.plan, first, length, lost)
        self.count_segments()
        return made

    def count_segments(self) -> None:
        """A segment that the superblock knows of cannot get lost unnoticed."""
        assert self.root is not None
        if self.root.segments != self.segments.made:
            self.write_root(replace(self.root, segments=self.segments.made))
