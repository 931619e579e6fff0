"""Events, effects and commands of the coordinator machine."""

from __future__ import annotations

from dataclasses import dataclass

from shardlog.protocol.effects import Received, Send, Tick
from shardlog.protocol.entry import EntryId, Member
from shardlog.protocol.failures import Refusal
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard
from shardlog.protocol.upkeep import USUAL, Upkeep

# --- commands ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateShard:
    nodes: tuple[str, ...]
    quorum: QuorumPolicy
    upkeep: Upkeep = USUAL


@dataclass(frozen=True, slots=True)
class Swap:
    """Replace `old` by `new`; a node that lost its disk is swapped for itself."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Expand:
    new: str


@dataclass(frozen=True, slots=True)
class Contract:
    old: str


@dataclass(frozen=True, slots=True)
class AbortChange:
    """Give up a reconfiguration that is not in COMMIT yet."""


@dataclass(frozen=True, slots=True)
class Promote:
    """Hand leadership over to `node`, if it is caught up."""

    node: str


@dataclass(frozen=True, slots=True)
class TrimShard:
    """Drop committed entries below `first`."""

    first: int


@dataclass(frozen=True, slots=True)
class SetRetention:
    """From now on keep so many bytes, for so long; 0: however many, for ever."""

    bytes_max: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class DeleteShard:
    """Destroy every replica, then forget the shard.  Accepted once nothing can stop it."""


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    """Give up `entry`, of which no copy can be had; only while the shard waits for just that."""

    entry: EntryId


Command = (
    CreateShard
    | Swap
    | Expand
    | Contract
    | AbortChange
    | Promote
    | TrimShard
    | SetRetention
    | DeleteShard
    | AcceptLoss
)

# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loaded:
    """The record as it stands, from a read or a watch; version 0 and None if there is none."""

    version: int
    shard: Shard | None


@dataclass(frozen=True, slots=True)
class Swapped:
    """The answer to a `CompareAndSwap`: if not `done`, the record as it stands."""

    done: bool
    version: int
    shard: Shard | None


@dataclass(frozen=True, slots=True)
class Commanded:
    """A person, or the operator's reconcile, wants something."""

    number: int
    command: Command


@dataclass(frozen=True, slots=True)
class LeadersCounted:
    """How many shards each node leads.  A coordinator sees one shard; its driver sees them all."""

    leaders: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NobodyListens:
    """The member's machine is there, and says that nobody listens at the node's address."""

    member: Member


@dataclass(frozen=True, slots=True)
class Alerted:
    """Something has changed on a node that hosts the shard: look closely for a while.

    Only a hint.  Whoever never gets one finds out by itself, later.
    """


CoordinatorEvent = (
    Loaded | Swapped | Commanded | LeadersCounted | NobodyListens | Alerted | Received | Tick
)

# --- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Read the record; answered by `Loaded`."""


@dataclass(frozen=True, slots=True)
class CompareAndSwap:
    """Write `shard` if the version still is `version`; answered by `Swapped`.

    None removes the record.
    """

    version: int
    shard: Shard | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The command stands in the metadata, or has been carried out.

    Of TrimShard and Promote it only says that the leader is asked: nobody asks the next one.
    """

    number: int


BUSY = "busy: try again"
"""Why a command is rejected while another one, or a record, is being written."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The command cannot be done; `reason` is for a person, `refusal` for a program."""

    number: int
    reason: str
    refusal: Refusal | None = None


CoordinatorEffect = Load | CompareAndSwap | Send | Accepted | Rejected


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """Every bound of a coordinator, with its unit in the name.

    A leader is given up after it has not been seen to work for `leader_timeout_ms`; if nobody
    listens at its address any more, once its followers have not heard it for `gone_ms`.

    Members are asked how they are every `status_ms`; at rest, every `rest_ms`.  Nothing is at rest
    before `alert_ms` have passed since the last change.
    """

    status_ms: int = 100
    rest_ms: int = 3000
    alert_ms: int = 500
    gone_ms: int = 200
    resend_ms: int = 150
    leader_timeout_ms: int = 600
    election_timeout_ms: int = 1500
    change_timeout_ms: int = 6000
    join_timeout_ms: int = 10000
    pause_ms: int = 400
    write_timeout_ms: int = 2000
