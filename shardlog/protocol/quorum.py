"""Quorums: how many replicas a promise needs.

Two numbers are chosen, `replication` (acks that commit an entry) and `fencing` (answers that
allow an election).  Any pair with replication + fencing > n is safe, because every committed
entry is then held by at least one replica of every fencing quorum.  The nack quorum follows: an
entry that `n - replication + 1` replicas never had cannot have been committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from shardlog.protocol.entry import Member

Ensemble = tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorums of an ensemble of `size` replicas."""

    size: int
    replication: int
    fencing: int

    @property
    def nack(self) -> int:
        return self.size - self.replication + 1


@dataclass(frozen=True, slots=True)
class QuorumPolicy:
    """What the user chose; None means majority.

    An ensemble may pass through sizes the user did not choose for.  There the choice is bent to
    the nearest safe one: never more than all, and fencing large enough to meet replication.
    """

    replication: int | None = None
    fencing: int | None = None

    def chosen(self, size: int) -> tuple[int, int]:
        """Replication and fencing as the user wants them, safe or not."""
        majority = size // 2 + 1
        replication = majority if self.replication is None else self.replication
        return replication, majority if self.fencing is None else self.fencing

    def of(self, size: int) -> Quorum:
        return _bent(self.replication, self.fencing, size)


@lru_cache
def _bent(wanted: int | None, wanted_fencing: int | None, size: int) -> Quorum:
    majority = size // 2 + 1
    replication = min(wanted or majority, size)
    fencing = min(wanted_fencing or majority, size)
    return Quorum(size, replication, max(fencing, size - replication + 1))


def is_safe(size: int, replication: int, fencing: int) -> bool:
    """Whether a user may choose this pair for an ensemble of `size`."""
    in_range = 1 <= replication <= size and 1 <= fencing <= size
    return in_range and replication + fencing > size


def reached(count: int, ensemble: Ensemble, present: Collection[Member]) -> bool:
    """Whether `count` members of `ensemble` are among `present`."""
    return sum(1 for member in ensemble if member in present) >= count


def always_meet(policy: QuorumPolicy, fenced: Ensemble, replicated: Ensemble) -> bool:
    """Whether every fencing quorum of one ensemble holds a member of every replication quorum of
    the other."""
    shared = len(set(fenced) & set(replicated))
    fencing, replication = policy.of(len(fenced)).fencing, policy.of(len(replicated)).replication
    fencing_shared = max(0, fencing - (len(fenced) - shared))
    replication_shared = max(0, replication - (len(replicated) - shared))
    return fencing_shared + replication_shared > shared


def replicated_end(replication: int, ends: Iterable[int]) -> int:
    """The offset up to which `replication` of these logs reach; 0 if there are fewer logs."""
    ranked = sorted(ends, reverse=True)
    return ranked[replication - 1] if len(ranked) >= replication else 0
