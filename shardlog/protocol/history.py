"""Epoch histories: where two logs part.

A history lists, for each epoch that has entries, the first offset it wrote.  An epoch has one
leader, and a leader adopts its predecessor's history before it adds its own epoch, so two
histories that share an epoch share all that came before it.  Hence the point where two logs part
is the end of their last common epoch: the smaller of the two ends, because within one epoch one
log is a prefix of the other.  Neither log needs to be read to find it.  (Where metadata came back
from a backup one epoch may have been led twice; checksums tell those apart, see `leading`.)
"""

from __future__ import annotations

from typing import NamedTuple

from shardlog.protocol.failures import ImpossibleState

OPEN_END = 1 << 62
"""The end of a log that is still being written, for comparison with one that stopped."""


class Span(NamedTuple):
    """One epoch's part of a log: it starts at `first` and ends where the next span starts."""

    epoch: int
    first: int

    def __str__(self) -> str:
        return f"{self.epoch}@{self.first}"


History = tuple[Span, ...]


def clip(history: History, end: int) -> History:
    """The spans that have room for an entry in a log that may reach up to `end` (rule 2)."""
    keep = len(history)
    while keep and history[keep - 1].first >= end:
        keep -= 1
    return history[:keep]


def extended(history: History, epoch: int, first: int) -> History:
    """`history` with a new epoch that starts at `first`; spans without entries are dropped."""
    kept = clip(history, first)
    if kept and kept[-1].epoch >= epoch:
        raise ImpossibleState(f"epoch {epoch} does not follow {kept[-1]}")
    return (*kept, Span(epoch, first))


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
        if ours != other:
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
