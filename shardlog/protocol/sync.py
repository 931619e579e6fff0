"""Sync negotiation: what a replica that was away has to receive.

It runs after the histories have been compared and the divergent suffix is gone, so one log is a
prefix of the other, but for what either has trimmed.  Six cases are possible, and only one of
them costs the destination what it has: when the source no longer holds what would come next, the
destination starts over at the source's first offset.  That is allowed because everything below a
first offset is committed and has been dropped on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shardlog.protocol.failures import BelowCommit


class Plan(StrEnum):
    EQUAL = "equal"
    TAIL = "tail"
    """Send what is missing, from the destination's end."""
    WIPE = "wipe"
    """The source was trimmed past the destination: start over at the source's first offset."""


@dataclass(frozen=True, slots=True)
class Extent:
    """One side of the negotiation: `[first, end)`, committed up to `commit`."""

    first: int
    end: int
    commit: int


@dataclass(frozen=True, slots=True)
class Negotiated:
    plan: Plan
    start: int
    end: int


def negotiate(source: Extent, destination: Extent) -> Negotiated | BelowCommit:
    """What to send so that `destination`, already cut to the common prefix, equals `source`."""
    if destination.commit > source.end:
        return BelowCommit(destination.commit)
    if destination.end < source.first:
        return Negotiated(Plan.WIPE, source.first, source.end)
    if destination.end >= source.end:
        return Negotiated(Plan.EQUAL, source.end, source.end)
    return Negotiated(Plan.TAIL, destination.end, source.end)
