"""Epoch histories: where two logs part.

A history lists, for each epoch that has entries, the first offset it wrote.  An epoch has one
leader, and a leader adopts its predecessor's history before it adds its own epoch, so two
histories that share an epoch share all that came before it.  Hence the point where two logs part
is the end of their last common epoch: the smaller of the two ends, because within one epoch one
log is a prefix of the other.  Neither log needs to be read to find it.

Metadata that came back from a backup may number an epoch again.  The id of the election tells the
two apart: epochs are the same only if both their number and their election are.
"""

from __future__ import annotations

from typing import NamedTuple

from shardlog.protocol.failures import ImpossibleState

OPEN_END = 1 << 62
"""The end of a log that is still being written, for comparison with one that stopped."""
EPOCH_MAX = 1 << 62
"""No election is numbered higher: one each microsecond would take 146,000 years to get there.

Nodes promise no epoch above it and coordinators believe no report of one, so that there is always
a next epoch, which also fits into what stores and messages give it.
"""


class Span(NamedTuple):
    """One epoch's part of a log: it starts at `first` and ends where the next span starts.

    `election` is the id of the election that chose its leader; 0 if it is not known.
    """

    epoch: int
    first: int
    election: int = 0

    def __str__(self) -> str:
        return f"{self.epoch}@{self.first}"


History = tuple[Span, ...]


def same_election(one: int, other: int) -> bool:
    """Whether two ids may name the same election; one that is not known matches any."""
    return not one or not other or one == other


def clip(history: History, end: int) -> History:
    """The spans that have room for an entry in a log that may reach up to `end` (rule 2)."""
    keep = len(history)
    while keep and history[keep - 1].first >= end:
        keep -= 1
    return history[:keep]


def extended(history: History, span: Span) -> History:
    """`history` with a new epoch at its end; spans without entries are dropped."""
    kept = clip(history, span.first)
    if kept and kept[-1].epoch >= span.epoch:
        raise ImpossibleState(f"epoch {span.epoch} does not follow {kept[-1]}")
    return (*kept, span)


def epoch_at(history: History, offset: int) -> int:
    """The epoch of the entry at `offset`; 0 before the first span."""
    for span in reversed(history):
        if span.first <= offset:
            return span.epoch
    return 0


def last_epoch(history: History) -> int:
    """The epoch of the last entry (of a clipped history); 0 for an empty log."""
    return history[-1].epoch if history else 0


def divergence(mine: History, mine_end: int, theirs: History, theirs_end: int) -> int:
    """The end of the longest common prefix of two logs, from their histories alone."""
    mine, theirs = clip(mine, mine_end), clip(theirs, theirs_end)
    common = 0
    for ours, other in zip(mine, theirs, strict=False):
        if ours[:2] != other[:2] or not same_election(ours.election, other.election):
            break
        common += 1
    if not common:
        return 0
    end = mine[common].first if common < len(mine) else mine_end
    other_end = theirs[common].first if common < len(theirs) else theirs_end
    return min(end, other_end)


def written(history: History) -> str:
    """For people: `[1@0 3@2]`."""
    return "[" + " ".join(str(span) for span in history) + "]"
