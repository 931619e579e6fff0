"""The names of a simulated volume: what a crash leaves of creations, renames and removals.

A change of names is seen at once and durable after a sync of its directory.  The volume journals
them in order, like ext4: of the unsynced changes of one directory a crash keeps some first part
and drops the rest.  Directories are independent of each other, which is less than ext4 promises
and no more than `Files` does.  A rename is one change, also between two directories: then it is
durable with either of them, and so is what came before it in both.

A file whose name is not durable is gone after a crash, however well its bytes were synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from shardlog.sim.faulty_content import Content
from shardlog.storage.failures import DiskFailed, MissingFile


class Directory:
    """What the process sees, and what is certain to be there after a crash."""

    __slots__ = ("cached", "durable")

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Content | Directory
Edit = tuple[Directory, str, Node | None]
"""A name in a directory now stands for this, or for nothing."""


class Names:
    """A tree from one root; paths are taken from there, with or without a leading `/`."""

    __slots__ = ("root", "unsynced")

    def __init__(self) -> None:
        self.root = Directory()
        # Each is one change: its edits land together or not at all.
        self.unsynced: list[tuple[Edit, ...]] = []

    # --- finding ---------------------------------------------------------------------------------

    def find(self, path: str, durable: bool = False) -> Node | None:
        """What a path stands for, to the process or after a crash."""
        node: Node = self.root
        for name in _parts(path):
            if not isinstance(node, Directory):
                raise DiskFailed(path, "Not a directory")
            found = (node.durable if durable else node.cached).get(name)
            if found is None:
                return None
            node = found
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if node is None:
            raise MissingFile(path)
        if isinstance(node, Content):
            raise DiskFailed(path, "Not a directory")
        return node

    def content(self, path: str) -> Content:
        node = self.find(path)
        if node is None:
            raise MissingFile(path)
        if isinstance(node, Directory):
            raise DiskFailed(path, "Is a directory")
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        """The directory a name stands in, and the name."""
        parts = _parts(path)
        if not parts:
            raise DiskFailed(path, "the root has no name")
        *above, name = parts
        try:
            return self.directory("/".join(above)), name
        except MissingFile:
            raise MissingFile(path) from None

    # --- changing --------------------------------------------------------------------------------

    def create(self, path: str) -> Content:
        """What had the name goes first, in a change of its own, as it does on a real volume."""
        directory, name = self._place(path)
        old = directory.cached.get(name)
        if isinstance(old, Directory):
            raise DiskFailed(path, "Is a directory")
        if old is not None:
            self._change((directory, name, None))
        content = Content()
        self._change((directory, name, content))
        return content

    def make_directory(self, path: str) -> None:
        directory = self.root
        for name in _parts(path):
            node = directory.cached.get(name)
            if isinstance(node, Content):
                raise DiskFailed(path, "Not a directory")
            if node is None:
                node = Directory()
                self._change((directory, name, node))
            directory = node

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._place(old)
        target, new_name = self._place(new)
        node = source.cached.get(old_name)
        if node is None:
            raise MissingFile(old)
        replaced = target.cached.get(new_name)
        if replaced is node:
            return
        if isinstance(node, Directory) and _parts(new)[: len(_parts(old))] == _parts(old):
            raise DiskFailed(old, "Invalid argument")
        if replaced is not None:
            if isinstance(node, Directory) is not isinstance(replaced, Directory):
                is_directory = isinstance(replaced, Directory)
                raise DiskFailed(old, "Is a directory" if is_directory else "Not a directory")
            if isinstance(replaced, Directory) and replaced.cached:
                raise DiskFailed(old, "Directory not empty")
        self._change((source, old_name, None), (target, new_name, node))

    def remove(self, path: str) -> None:
        try:
            directory, name = self._place(path)
        except MissingFile:
            return
        node = directory.cached.get(name)
        if isinstance(node, Directory) and node.cached:
            raise DiskFailed(path, "Directory not empty")
        if node is not None:
            self._change((directory, name, None))

    def _change(self, *edits: Edit) -> None:
        for directory, name, node in edits:
            _edit(directory.cached, name, node)
        self.unsynced.append(edits)

    # --- landing ---------------------------------------------------------------------------------

    def sync(self, directory: Directory) -> None:
        """Its changes, and what a rename to or from elsewhere presupposes there."""
        if not self.unsynced:
            return
        touched = {directory}
        landing: list[tuple[Edit, ...]] = []
        waiting: list[tuple[Edit, ...]] = []
        for change in reversed(self.unsynced):
            places = {place for place, _, _ in change}
            if touched.isdisjoint(places):
                waiting.append(change)
            else:
                touched |= places
                landing.append(change)
        for change in reversed(landing):
            _land(change)
        self.unsynced = waiting[::-1]

    def crash(self, random: Random, luck: float) -> None:
        """A change that was dropped takes all later ones of its directories with it."""
        ended: set[Directory] = set()
        for change in self.unsynced:
            places = {place for place, _, _ in change}
            if ended.isdisjoint(places) and random.random() < luck:
                _land(change)
            else:
                ended |= places
        self.unsynced.clear()
        for directory in self.durable_directories():
            directory.cached = dict(directory.durable)

    def durable_directories(self) -> Iterator[Directory]:
        waiting = [self.root]
        while waiting:
            directory = waiting.pop()
            yield directory
            waiting += [node for node in directory.durable.values() if isinstance(node, Directory)]

    def durable_contents(self) -> Iterator[Content]:
        for directory in self.durable_directories():
            for node in directory.durable.values():
                if isinstance(node, Content):
                    yield node

    def used_bytes(self) -> int:
        """As the process sees it; what is open without a name is not counted."""
        total = 0
        waiting = [self.root]
        while waiting:
            for node in waiting.pop().cached.values():
                if isinstance(node, Directory):
                    waiting.append(node)
                else:
                    total += len(node.cached)
        return total


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _edit(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _land(change: tuple[Edit, ...]) -> None:
    for directory, name, node in change:
        _edit(directory.durable, name, node)
