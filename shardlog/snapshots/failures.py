"""What can go wrong with snapshots, by whose fault it is."""

from __future__ import annotations


class SnapshotFailure(Exception):  # noqa: N818 - named after what happened
    """Base of all; the message is one line for a person and names the thing."""


class BadDestination(SnapshotFailure):
    """A URL that can never be right."""


class DestinationUnavailable(SnapshotFailure):
    """Where snapshots are kept does not answer, or fails."""


class DestinationRefused(SnapshotFailure):
    """It answers no: credentials, permissions, no such bucket or directory."""


class ObjectMissing(SnapshotFailure):
    """There is no object of that name."""


class ObjectExists(SnapshotFailure):
    """There is one already."""


class NoSuchSnapshot(SnapshotFailure):
    """Nobody has made it, or it has been deleted."""


class NotPossible(SnapshotFailure):
    """What was asked for does not fit what is there."""


class DestinationBusy(SnapshotFailure):
    """Somebody else is at work there, and stands in the way."""


class RecordsLost(SnapshotFailure):
    """Records that were to be read have been given up, by `shardlog ops accept-loss`."""


class Damaged(SnapshotFailure):
    """A manifest or a segment is not as it was written, or is missing.

    `name` is the object, `offset` where in the log it is, if that is known.
    """

    def __init__(self, name: str, reason: str, offset: int | None = None) -> None:
        where = "" if offset is None else f" at offset {offset}"
        super().__init__(f"{name} is damaged{where}: {reason}")
        self.name = name
        self.offset = offset
        self.reason = reason
