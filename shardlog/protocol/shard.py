"""A shard's record in the metadata store: the truth about who may lead and who belongs.

Only coordinators read or write it, and every write is a compare-and-swap on its version.  The
record says what *may* have happened: it is written before each step is acted on, so whatever a
coordinator finds there, it knows what its predecessor may have done and what it cannot have done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shardlog.protocol.entry import EntryId, Header, Member
from shardlog.protocol.messages import Operation, Reconfiguration
from shardlog.protocol.quorum import Ensemble, QuorumPolicy
from shardlog.protocol.upkeep import USUAL, Upkeep


class Status(StrEnum):
    CREATING = "CREATING"
    ELECTION = "ELECTION"
    STEADY = "STEADY"
    DELETING = "DELETING"


class Phase(StrEnum):
    PREPARE = "PREPARE"
    COMMIT = "COMMIT"


@dataclass(frozen=True, slots=True)
class Joining:
    """A node that catches up as a standby before `operation` is prepared.

    `incarnation` is 0 until the node has told it.  A cancelled one is only to be cleaned up.
    """

    operation: Operation
    old: Member | None
    node: str
    incarnation: int
    cancelled: bool = False

    @property
    def member(self) -> Member:
        return Member(self.node, self.incarnation)


@dataclass(frozen=True, slots=True)
class Shard:
    """One record.  While CREATING, members whose incarnation is not known yet carry 0.

    `change` and `phase` go together.  `removed` are replicas still to be destroyed: all, while
    DELETING.  `preferred` is who a running election should choose among equals.  `halted` says why
    nothing more is done.  `accepting` is the entry that a person has given up, should the running
    election find no copy of it; `losses` are the headers of what was, unless a leader has it after
    all.
    `election` is the id of the election that chose the leader, or is about to.  `changed_in` is the
    epoch of the last change of the ensemble, completed or given up.
    """

    name: str
    status: Status
    epoch: int
    leader: Member | None
    ensemble: Ensemble
    quorum: QuorumPolicy = QuorumPolicy()
    change: Reconfiguration | None = None
    phase: Phase | None = None
    joining: Joining | None = None
    removed: tuple[Member, ...] = ()
    preferred: str | None = None
    halted: str | None = None
    accepting: EntryId | None = None
    losses: tuple[Header, ...] = ()
    upkeep: Upkeep = USUAL
    election: int = 0
    changed_in: int = 0

    @property
    def final_ensemble(self) -> Ensemble:
        """The ensemble that an election has to bring up: a change in COMMIT is completed."""
        if self.change and self.phase is Phase.COMMIT:
            return self.change.after
        return self.ensemble

    @property
    def ensembles(self) -> tuple[Ensemble, ...]:
        """Those whose fencing quorums an election needs (rule 7)."""
        if self.change and self.phase is Phase.COMMIT:
            return (self.ensemble, self.change.after)
        return (self.ensemble,)

    @property
    def fencing_ensemble(self) -> Ensemble:
        """Everyone whom an election fences."""
        return tuple(dict.fromkeys(member for each in self.ensembles for member in each))
