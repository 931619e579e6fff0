"""What Spark is told when something is wrong: one line that names the thing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shardlog.client.failures import ClientFailure
from shardlog.snapshots.failures import SnapshotFailure


class SparkFailure(Exception):  # noqa: N818 - named after what happened
    """Base of all."""


class BadOption(SparkFailure):
    """An option that is missing, unknown or makes no sense."""


class DataLost(SparkFailure):
    """Offsets that were to be read are gone; `failOnDataLoss` false skips them."""


class CannotRead(SparkFailure):
    """The cluster, or the snapshot, as it is, cannot be read."""


class CannotWrite(SparkFailure):
    """Nothing more is appended."""


@contextmanager
def translated(kind: type[SparkFailure] = CannotRead) -> Iterator[None]:
    """The failures of the client and of snapshots, at the edge to Spark."""
    try:
        yield
    except (ClientFailure, SnapshotFailure) as failure:
        raise kind(str(failure)) from failure
