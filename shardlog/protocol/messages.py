"""Everything that travels between coordinators, replicas and clients.

Each message is a frozen value; an `Envelope` adds who, to whom, and which incarnation is meant.
Every control message names the epoch that it acts in; a receiver that knows a higher one says so.
"""

from __future__ import annotations

from enum import StrEnum

from shardlog.protocol.entry import Body, Entry, EntryId, Header, Member
from shardlog.protocol.failures import Refusal
from shardlog.protocol.history import History
from shardlog.protocol.log import Mark
from shardlog.protocol.quorum import Ensemble, QuorumPolicy
from shardlog.protocol.sessions import UNNAMED_LIMITS, SessionLimits, Sessions
from shardlog.protocol.transferring import Transfer
from shardlog.protocol.upkeep import Upkeep
from shardlog.protocol.value import value


@value
class Message:
    """Base of all that travels."""


@value
class Envelope:
    """`src_incarnation` and `dst_incarnation` are 0 where no replica is meant."""

    shard: str
    src: str
    src_incarnation: int
    dst: str
    dst_incarnation: int
    message: Message


# --- parts of messages -------------------------------------------------------------------------


class Operation(StrEnum):
    """The three reconfigurations."""

    SWAP = "swap"
    EXPAND = "expand"
    CONTRACT = "contract"


@value
class Reconfiguration:
    """`old` leaves, `new` joins; `before` is the ensemble they start from."""

    operation: Operation
    before: Ensemble
    old: Member | None
    new: Member | None

    @property
    def after(self) -> Ensemble:
        """The final ensemble, in the order of the old one."""
        kept = tuple(member for member in self.before if member != self.old)
        return (*kept, self.new) if self.new else kept


@value
class Slot:
    """One entry, or unreadable stretch, up to `end`; the last in it has `checksum`; 0: unknown."""

    epoch: int
    base: int
    end: int
    checksum: int
    mark: Mark


@value
class Kept:
    """The log that a new leader has to lead with: `[.., end)` by `history`, ending in `head`."""

    history: History
    end: int
    head: int


@value
class Snapshot:
    """A descriptor of committed entries `[first, end)` at `source`; the bytes move directly.

    `head` is the checksum of the entry that ends at `end`, where `sessions` stands.
    """

    source: Member
    history: History
    first: int
    boundary: int
    end: int
    head: int
    sessions: Sessions
    session_limits: SessionLimits = UNNAMED_LIMITS


@value
class Membership:
    """The ensemble that a replica was last told of, by whose election and in which epoch.

    If a change was under way then, the final one: whether it was completed the record tells.
    """

    epoch: int
    election: int
    ensemble: Ensemble


@value
class CursorStatus:
    """Where one follower stands, as its leader sees it.

    `acked` is durable there, or where a standby is.  `sent_bytes` counts the entries sent to it.
    """

    member: Member
    acked: int
    standby: bool
    lost: bool
    heard_ms_ago: int = 0
    sent_bytes: int = 0


# --- coordinator → replica ---------------------------------------------------------------------


@value
class Create(Message):
    """Format a replica, if there is none: the only message that does (rule 12)."""


@value
class Fence(Message):
    """Stop replicating below `epoch` and tell what may be held.

    `election` is the id of the election that chose `epoch`; 0 if it has none.
    """

    epoch: int
    election: int = 0


@value
class BecomeLeader(Message):
    """Lead `epoch` with the log `kept`; `sources` have what is bad here.

    `losses` may be given up, but for those in `found`, of which a copy has answered.
    """

    epoch: int
    ensemble: Ensemble
    quorum: QuorumPolicy
    kept: Kept
    sources: tuple[Member, ...]
    followers: tuple[FenceAnswer, ...]
    losses: tuple[Header, ...] = ()
    election: int = 0
    found: tuple[EntryId, ...] = ()


@value
class AddFollower(Message):
    """A late fencer, a member that came back, or a standby."""

    epoch: int
    answer: FenceAnswer
    standby: bool


@value
class Prepare(Message):
    """First phase: stop counting the leaving node, and say when the rest is covered (rule 8)."""

    epoch: int
    change: Reconfiguration


@value
class Commit(Message):
    """Second phase, after COMMIT stands in the metadata: same epoch, idempotent."""

    epoch: int
    change: Reconfiguration


@value
class Abort(Message):
    """Back to `ensemble` in a new epoch; the new node stays a standby."""

    epoch: int
    ensemble: Ensemble


@value
class SnapshotRequest(Message):
    """Describe what a new node has to install."""

    epoch: int


@value
class InstallSnapshot(Message):
    """To a new node: fetch this from its source, or from others that may hold it too."""

    epoch: int
    snapshot: Snapshot
    others: tuple[Member, ...] = ()


@value
class PauseWrites(Message):
    """Before a hand-over: admit no new request until `target` has caught up, or a bound passes."""

    epoch: int
    target: Member


@value
class Trim(Message):
    """Drop committed entries below `first`."""

    epoch: int
    first: int


@value
class Destroy(Message):
    """The addressed incarnation is no longer needed."""


@value
class StatusRequest(Message):
    """How are you?  And this is the upkeep of the shard, if it is not the usual one."""

    epoch: int
    upkeep: Upkeep | None = None


# --- replica → coordinator ---------------------------------------------------------------------


@value
class Created(Message):
    incarnation: int


@value
class FenceAnswer(Message):
    """All that a replica may hold, as a pure function of its durable state (M7).

    `slots` lists the suffix from its commit offset on, and every bad slot below it; `damaged` the
    headers that are known of the first bad ones.  With an open tail, which cannot be read,
    `tail_slots` is how many entries it may have held; 0 if any number.  `membership` is what the
    replica was last told of the ensemble.
    """

    member: Member
    epoch: int
    history: History
    first: int
    commit: int
    end: int
    head: int
    open_tail: bool
    syncing: bool
    slots: tuple[Slot, ...]
    tail_slots: int = 0
    damaged: tuple[Header, ...] = ()
    election: int = 0
    membership: Membership | None = None

    @property
    def may_end(self) -> int:
        return self.end + 1 if self.open_tail else self.end

    @property
    def intact_end(self) -> int:
        """The end of what is held for certain, from the commit offset on."""
        bad = (s.base for s in self.slots if s.mark is not Mark.PRESENT and s.base >= self.commit)
        return min(bad, default=self.end)


@value
class BecameLeader(Message):
    """The epoch is open.  `needless` are losses that were permitted, and stand in the log whole."""

    epoch: int
    needless: tuple[EntryId, ...] = ()


@value
class CannotServe(Message):
    """What must be kept cannot be repaired here; `awaited` is the first such offset (T13)."""

    epoch: int
    awaited: int


@value
class FollowerAdded(Message):
    epoch: int
    member: Member


@value
class Prepared(Message):
    epoch: int
    covered: bool


@value
class Committed(Message):
    epoch: int


@value
class Aborted(Message):
    epoch: int


@value
class SnapshotOffer(Message):
    epoch: int
    snapshot: Snapshot


@value
class SnapshotInstalled(Message):
    epoch: int
    end: int


@value
class WritesPaused(Message):
    """`caught_up`: the target holds everything."""

    epoch: int
    target: Member
    caught_up: bool


@value
class Destroyed(Message):
    incarnation: int


@value
class StatusReport(Message):
    """`heard_ms_ago` is when a follower last heard a leader that has its quorum.

    -1 if it never did, or if their connection broke since.  `asked` echoes the request's epoch.
    `slack_ms`: so much longer than usual the next heartbeat may take, while nothing happens.
    `draining`: its leaderships are to be handed over.  `full`: what it shall write waits for room.
    `bad` counts the entries, or unreadable stretches, whose copy here is damaged; `awaited` is the
    first of them, once everyone who might have supplied it has been asked.
    `repaired` counts what was written anew since the node opened the replica; a scrubber that has
    finished `scrub_rounds` over the whole log is at offset `scrubbed` of the next.
    `transfer` is there while it receives what it lacked when it was told of the leader's log.
    """

    asked: int
    member: Member
    role: str
    epoch: int
    history: History
    end: int
    commit: int
    leader: Member | None
    heard_ms_ago: int
    serving: bool
    quorum_fresh: bool
    ensemble: Ensemble
    cursors: tuple[CursorStatus, ...]
    draining: bool = False
    bad: int = 0
    awaited: EntryId | None = None
    repaired: int = 0
    scrubbed: int = 0
    scrub_rounds: int = 0
    transfer: Transfer | None = None
    slack_ms: int = 0
    full: bool = False
    election: int = 0


@value
class Refused(Message):
    """A typed no.  `request` is the name of the message refused."""

    request: str
    epoch: int
    refusal: Refusal


# --- replica ⇄ replica -------------------------------------------------------------------------


@value
class Announce(Message):
    """The leader's history; `cut` is where, as it computes, the follower's log parts from it.

    `end` is where the leader's log ends: whatever was committed before is below it.  `members` are
    the ensemble; while a change is under way, the final one.
    """

    epoch: int
    history: History
    end: int
    cut: int
    commit: int
    standby: bool
    snapshot: Snapshot | None
    election: int = 0
    members: Ensemble = ()


@value
class Entries(Message):
    """Consecutive entries, the commit offset and the first offset."""

    epoch: int
    entries: tuple[Entry, ...]
    commit: int
    first: int


@value
class Heartbeat(Message):
    """`quorum_fresh`: the sender has lately heard a replication quorum; only then it counts."""

    epoch: int
    commit: int
    first: int
    beat: int
    quorum_fresh: bool


@value
class Ack(Message):
    """Everything below `end` matches the leader's log and is durable here.

    `beat` echoes the latest heartbeat.  `at` is where our log ends, durable or not: what is next.
    """

    epoch: int
    end: int
    at: int
    beat: int


@value
class Progress(Message):
    """Where a standby, or a follower that is syncing, has got to: it never acks (T12, V9)."""

    epoch: int
    at: int


@value
class Fetch(Message):
    """For repair and snapshots: the intact entries of `history` from `start`, below `end`."""

    epoch: int
    history: History
    start: int
    end: int


@value
class Fetched(Message):
    epoch: int
    entries: tuple[Entry, ...]
    more: int = 0  # records of the same answer that come behind these


# --- client ⇄ leader ---------------------------------------------------------------------------


@value
class Register(Message):
    """Open a session.  `nonce` is a random number other than 0, the same for every try."""

    nonce: int


@value
class Append(Message):
    session: int
    request: int
    count: int
    body: Body
    body_checksum: int


@value
class Read(Message):
    """Committed entries from `start`, confirmed to be the latest when this request came in."""

    nonce: int
    start: int
    entries_max: int


@value
class Registered(Message):
    nonce: int
    session: int


@value
class Appended(Message):
    session: int
    request: int
    base: int


@value
class ReadResult(Message):
    """`commit` is the commit offset at the moment of reading."""

    nonce: int
    entries: tuple[Entry, ...]
    commit: int


@value
class ClientRefused(Message):
    """`nonce` is the request's number or nonce."""

    session: int
    nonce: int
    refusal: Refusal
