"""The state of a replica, and the means by which its rules speak.

All of it is plain data: a replica can be pickled, compared and hashed.  Each invariant stands
beside its field.  What a rule wants done it emits; what has to wait for a sync becomes a
`Promise`, which `Replica` fulfils when the sync is reported.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from shardlog.protocol.effects import (
    Barrier,
    Effect,
    Limits,
    Send,
    Superblock,
    Sync,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import Entry, Header, Kind, Member, Seal
from shardlog.protocol.failures import ImpossibleState, Refusal
from shardlog.protocol.history import History, clip, same_election
from shardlog.protocol.leadership import Leadership
from shardlog.protocol.log import Archive, Log, Mark
from shardlog.protocol.messages import (
    Ack,
    Append,
    ClientRefused,
    Envelope,
    FenceAnswer,
    Fetch,
    Fetched,
    Membership,
    Message,
    Progress,
    Read,
    Refused,
    Register,
    Slot,
    Snapshot,
    SnapshotOffer,
)
from shardlog.protocol.sessions import SessionTable
from shardlog.protocol.states import Cause, Role, next_role
from shardlog.protocol.transferring import Transferring
from shardlog.protocol.upkeep import USUAL

COMMITTED_TOLD_MAX = 32
DAMAGED_TOLD_MAX = 16
"""So many headers of bad entries are told in a fence answer: one is enough to go on."""

UNANSWERED = frozenset({Refused, Ack, Progress, FenceAnswer, Fetch, Fetched, SnapshotOffer})
"""Messages that are never refused: a refusal of an answer would echo for ever."""


class Due(StrEnum):
    """What has to follow a sync."""

    ENTRIES = "entries"
    FENCED = "fenced"
    FOLLOWING = "following"
    LED = "led"
    OPENED = "opened"
    CREATED = "created"
    DESTROYED = "destroyed"
    INSTALLED = "installed"


class Promise(NamedTuple):
    """Once `token` is synced, and if the epoch still is `epoch`, do what is `due`."""

    token: int
    due: Due
    epoch: int
    end: int
    to: str


class Rewrite(NamedTuple):
    """A slot that was repaired in place; durable once `token` is synced."""

    base: int
    token: int


class ReplicaState:
    """See the module."""

    __slots__ = (
        "archive",
        "asked",
        "at_odds",
        "commit",
        "draining",
        "durable_end",
        "election",
        "epoch",
        "feed_bytes",
        "fetch_until",
        "fetched_ms",
        "forgotten",
        "full",
        "gathered",
        "heard_ms",
        "history",
        "in_doubt",
        "incarnation",
        "lead",
        "leader",
        "leader_rests",
        "led",
        "limits",
        "log",
        "membership",
        "node",
        "now_ms",
        "others",
        "out",
        "owes_sync",
        "promises",
        "repaired",
        "rewrites",
        "role",
        "scrub_rounds",
        "scrubbed",
        "seal",
        "served_bytes",
        "sessions",
        "set_back_ms",
        "shard",
        "source_at",
        "syncing",
        "tail_until",
        "token",
        "told",
        "transfer",
        "transferred_bytes",
        "upkeep",
        "upkeep_of",
    )

    def __init__(
        self, shard: str, node: str, limits: Limits, seal: Seal, archive: Archive | None = None
    ) -> None:
        self.shard = shard
        self.node = node
        self.limits = limits
        self.seal = seal
        self.archive = archive
        # Our own time, which never goes back: the clock, and by how much that has been set back.
        self.now_ms = 0
        self.set_back_ms = 0
        self.out: list[Effect] = []
        # Entries of this step that are in the log and not among its effects yet, and whether the
        # step owes them a sync.  Empty and False between steps.
        self.gathered: list[Entry] = []
        self.owes_sync = False
        self.token = 0
        self.promises: list[Promise] = []
        # Set by a node that is about to stop, and told in its status: leadership is handed over.
        self.draining = False
        # Set by the driver, and told in its status: what was to be written waits for room.
        self.full = False
        # Counted by the driver, and told in its status: entries written anew, and the scrubber's
        # progress.
        self.repaired = 0
        self.scrubbed = 0
        self.scrub_rounds = 0
        # Set by the driver: how many bytes of old entries may be sent now; None for no bound.
        self.feed_bytes: int | None = None
        # Who asked for entries while none might be sent, and for what.
        self.asked: dict[Member, Fetch] = {}
        # Of the bodies that were fetched here last, each.
        self.served_bytes = 0
        # Counted since the start, for the metrics: entries that came while we were behind.
        self.transferred_bytes = 0
        self.blank(0)

    def blank(self, incarnation: int) -> None:
        """The state of a replica that has just been formatted, or of none (incarnation 0)."""
        self.role = Role.NOT_MEMBER
        self.incarnation = incarnation
        # The highest epoch promised; never falls.
        self.epoch = 0
        # The election that it was promised to: an epoch is never shared by two.  0: none is known.
        self.election = 0
        self.membership: Membership | None = None
        # The last epoch this replica led, or is leading; led ≤ epoch.
        self.led = 0
        self.history: History = ()
        self.log = Log(archive=self.archive)
        # Headers left to the archive since the superblock was written last.
        self.forgotten = 0
        # Everything below is committed; commit ≤ log.end, and it never falls.
        self.commit = 0
        # Everything below is synced; durable_end ≤ log.end.
        self.durable_end = 0
        # Repaired, but not synced yet.
        self.rewrites: list[Rewrite] = []
        # Folded up to the commit offset, or to the first header below it that is unreadable.
        self.sessions = SessionTable()
        # The snapshot being installed: until it is whole, nothing is acknowledged.
        self.syncing: Snapshot | None = None
        # Who may hold it beside its source, and whose turn it is to be asked.
        self.others: tuple[Member, ...] = ()
        self.source_at = 0
        # Up to where the answers that are under way will bring it; 0 if there are none.
        self.fetch_until = 0
        # How far we are with what we lacked when we were told of it.
        self.transfer: Transferring | None = None
        # While the tail cannot be read: where it will have been made good, by our leader's log.
        self.tail_until = 0
        # Entries that an unreadable tail may have held before the log was started over.
        self.in_doubt = 0
        self.leader: Member | None = None
        # Whether our leader has sent an entry that is not the one here, or does not continue our
        # log: nothing more is acknowledged to it (T1).
        self.at_odds = False
        self.heard_ms = -1
        # The commit offset that the last heartbeat told, and whether the next may take its time.
        self.told = -1
        self.leader_rests = False
        self.fetched_ms = -1
        # How records are kept, and the epoch and version of whoever told so.
        self.upkeep = USUAL
        self.upkeep_of = (0, 0)
        # Set exactly while the role is LEADER.
        self.lead: Leadership | None = None

    def read_clock(self, clock_ms: int) -> None:
        """A clock that is set back must not stop everything until it has caught up (T10)."""
        if clock_ms + self.set_back_ms < self.now_ms:
            self.set_back_ms = self.now_ms - clock_ms
        self.now_ms = clock_ms + self.set_back_ms

    @property
    def clock_ms(self) -> int:
        """The clock as last read, for timestamps."""
        return self.now_ms - self.set_back_ms

    @property
    def slack_ms(self) -> int:
        """By how much longer than usual the next heartbeat may take."""
        return self.limits.slack_ms if self.leader_rests else 0

    @property
    def member(self) -> Member:
        return Member(self.node, self.incarnation)

    def promise(self, epoch: int, election: int) -> None:
        """Take part in `epoch` from now on, for this election and no other of that epoch."""
        if epoch > self.epoch:
            self.epoch, self.election = epoch, election
        elif not self.election:
            self.election = election

    def is_promised_elsewhere(self, epoch: int, election: int) -> bool:
        """Whether `epoch` is our epoch and was promised to another election."""
        return epoch == self.epoch and not same_election(election, self.election)

    def become(self, cause: Cause) -> None:
        self.role = next_role(self.role, cause)
        self.transfer = None
        if self.role is not Role.LEADER:
            self.lead = None

    def emit(self, effect: Effect) -> None:
        """Behind the entries that were gathered before it."""
        if self.gathered:
            self.write_gathered()
        self.out.append(effect)

    def gather(self, entry: Entry) -> None:
        """To be written with the others that come in this step; the caller asks for the sync."""
        self.gathered.append(entry)

    def write_gathered(self) -> None:
        """The commit offset rides along (rule 17)."""
        entries, self.gathered = tuple(self.gathered), []
        self.out.append(WriteEntries(entries, min(self.commit, self.durable_end)))

    def send(self, to: Member | str, message: Message) -> None:
        node, incarnation = (to, 0) if isinstance(to, str) else to
        self.out.append(
            Send(Envelope(self.shard, self.node, self.incarnation, node, incarnation, message))
        )

    def answer(self, envelope: Envelope, message: Message) -> None:
        self.out.append(
            Send(
                Envelope(
                    self.shard,
                    self.node,
                    self.incarnation,
                    envelope.src,
                    envelope.src_incarnation,
                    message,
                )
            )
        )

    def refuse(self, envelope: Envelope, refusal: Refusal) -> None:
        """A typed no, to whoever asked."""
        message = envelope.message
        if isinstance(message, Append):
            self.answer(envelope, ClientRefused(message.session, message.request, refusal))
        elif isinstance(message, Register | Read):
            self.answer(envelope, ClientRefused(0, message.nonce, refusal))
        elif type(message) not in UNANSWERED:
            self.answer(envelope, Refused(type(message).__name__, self.epoch, refusal))

    def sync(self, due: Due, end: int = 0, to: str = "") -> None:
        """Make everything emitted so far durable, then do what is due."""
        self.token += 1
        self.promises.append(Promise(self.token, due, self.epoch, end, to))
        self.emit(Sync(self.token))

    def persist(self) -> None:
        """Write the superblock, after the log that its commit offset and sessions rest on."""
        self.forgotten = 0
        self.emit(Barrier())
        self.emit(
            WriteSuperblock(
                Superblock(
                    self.incarnation,
                    self.epoch,
                    self.led,
                    self.history,
                    self.commit,
                    self.sessions.applied,
                    self.sessions.at_rest(),
                    self.syncing,
                    self.in_doubt,
                    self.election,
                    self.membership,
                    self.sessions.limits,
                )
            )
        )

    def advance_commit(self, commit: int) -> None:
        """Commit offsets only rise, and never beyond the log."""
        if commit <= self.commit:
            return
        if commit > self.log.end:
            raise ImpossibleState(f"commit {commit} beyond the log's end {self.log.end}")
        self.commit = commit
        self.apply()

    def apply(self) -> None:
        """The apply index follows the commit offset and never passes it (O9)."""
        if self.sessions.applied < self.commit:
            self.sessions.fold(self.log.between(self.sessions.applied, self.commit))

    def backlogged(self, part: int = 1) -> bool:
        """Whether more waits for our disk than may wait: it has stalled, or is far too slow.

        Or than a `part` of that, for whoever would rather not let it come so far.
        """
        log, limits = self.log, self.limits
        entries_max = limits.unsynced_entries_max // part
        bytes_max = limits.unsynced_bytes_max // part
        if log.end - self.durable_end < entries_max and (
            not log.weights or log.weights[-1] - log.weights[0] < bytes_max
        ):
            return False  # even if all that is known of were waiting
        entries, size = log.load(self.durable_end, log.end)
        return entries >= entries_max or size >= bytes_max

    def acked_end(self) -> int:
        """What may be acknowledged: durable, and whole from the commit offset on."""
        end = min(self.durable_end, self.log.intact_end(self.commit))
        return min([end, *(each.base for each in self.rewrites if each.base >= self.commit)])

    def fence_answer(self) -> FenceAnswer:
        """A pure function of what is durable (M7)."""
        log = self.log
        told = self._told_from()
        bad_below = [header for header in log.bad() if header.base < told]
        listed = [*bad_below, *log.between(told, log.may_end)]
        return FenceAnswer(
            self.member,
            self.epoch,
            clip(self.history, log.may_end),
            log.first,
            self.commit,
            log.end,
            0 if log.open_tail else log.head_checksum,
            log.open_tail,
            self.syncing is not None,
            tuple(self._slot(header) for header in listed),
            log.tail_slots if log.open_tail else 0,
            self._damaged(),
            self.election,
            self.membership,
        )

    def _told_from(self) -> int:
        """Some entries below the commit offset are told one by one.

        Where tails of others cannot be read it takes their number to know where these ended.
        """
        log, at = self.log, self.commit
        for _ in range(COMMITTED_TOLD_MAX):
            before = log.covering(at - 1) if at > log.first else None
            if before is None or before.kind is Kind.UNKNOWN or not log.present(before.base):
                break
            at = before.base
        return at

    def _damaged(self) -> tuple[Header, ...]:
        known = (header for header in self.log.bad() if header.kind is not Kind.UNKNOWN)
        return tuple(islice(known, DAMAGED_TOLD_MAX))

    def _slot(self, header: Header) -> Slot:
        mark = self.log.marks.get(header.base, Mark.PRESENT)
        end = header.end if header.count else 0
        checksum = header.checksum
        if header.kind is Kind.UNKNOWN and end:
            after = self.log.starting_at(end)
            checksum = after.parent if after is not None else 0
        return Slot(header.epoch, header.base, end, checksum, mark)
