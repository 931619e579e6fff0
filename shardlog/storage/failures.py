"""Everything that can be wrong with a disk, by type; each names the file.

Blame is in the type: `Retriable` ones go away when there is room again, `Damaged` ones are for
repair or for a swap of the replica, the others are for the person who started the process.
"""

from __future__ import annotations

from shardlog.protocol.failures import NO_SPACE


class StorageFailure(Exception):  # noqa: N818 - named after what happened
    """The base of all; the message is one line for a person."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Retriable(StorageFailure):
    """Nothing was written; the same may succeed later."""


class DiskFull(Retriable):
    """No room for the next segment."""

    def __init__(self, path: str) -> None:
        super().__init__(path, NO_SPACE)


class TooManyOpenFiles(Retriable):
    def __init__(self, path: str) -> None:
        super().__init__(path, "too many open files; raise the limit (ulimit -n)")


class ReadOnlyVolume(StorageFailure):
    def __init__(self, path: str) -> None:
        super().__init__(path, "the volume is read-only")


class VolumeInUse(StorageFailure):
    def __init__(self, path: str) -> None:
        super().__init__(path, "another process uses this volume")


class MissingFile(StorageFailure):
    def __init__(self, path: str) -> None:
        super().__init__(path, "no such file or directory")


class NotPermitted(StorageFailure):
    def __init__(self, path: str) -> None:
        super().__init__(path, "permission denied")


class DiskFailed(StorageFailure):
    """A read, write or sync reported an error.  After a failed sync nothing unsynced is certain."""


class WrongFormat(StorageFailure):
    """Written by another version of Shardlog, or not by Shardlog."""


class WrongIdentity(StorageFailure):
    """The files belong to another shard, node or formatting."""


class Damaged(StorageFailure):
    """Bytes that were durable have changed, and no other copy of them is here."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(path, f"at byte {position}: {why}")
        self.position = position
