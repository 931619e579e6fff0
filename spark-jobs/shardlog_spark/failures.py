"""What Spark is told when something is wrong: one line that names the thing.

Spark passes failures of tasks on as text, in which the name of the class stands; so each that a
program must tell apart has a class of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shardlog.client import failures as client
from shardlog.snapshots import failures as snapshots


class SparkFailure(Exception):  # noqa: N818 - named after what happened
    """Base of all."""


class BadOption(SparkFailure):
    """An option that is missing, unknown or makes no sense."""


class DataLost(SparkFailure):
    """Offsets that were to be read are gone; `failOnDataLoss` false skips them."""


class OtherLog(SparkFailure):
    """Under the shard's name is another log than a checkpoint was made with."""


class CannotRead(SparkFailure):
    """The cluster, or the snapshot, as it is, cannot be read."""


class CannotWrite(SparkFailure):
    """Nothing more is appended."""


class OtherRows(SparkFailure):
    """A task that ran again had other rows than before."""


class DamagedSource(SparkFailure):
    """What is read is not what was written."""


class NoAnswer(SparkFailure):
    """The cluster, or whoever keeps the snapshots, gives none."""


@contextmanager
def translated(kind: type[SparkFailure] = CannotRead) -> Iterator[None]:
    """The failures of the client and of snapshots, at the edge to Spark; `kind` if they say no."""
    try:
        yield
    except (client.ClientFailure, snapshots.SnapshotFailure) as failure:
        raise _kind(failure, kind)(str(failure)) from failure


def _kind(failure: Exception, refused: type[SparkFailure]) -> type[SparkFailure]:
    match failure:
        case client.InvalidArgument() | snapshots.BadDestination():
            return BadOption
        case client.CorruptLog() | client.UnreadableBatch() | client.EntryLost():
            return DamagedSource
        case snapshots.Damaged():
            return DamagedSource
        case client.NumberTaken():
            return OtherRows
        case (
            client.NoSuchShard()
            | client.OffsetTrimmed()
            | client.Refused()
            | client.SessionEvicted()
        ):
            return refused
        case client.ClientFailure() | snapshots.DestinationUnavailable():
            return NoAnswer
    return refused
