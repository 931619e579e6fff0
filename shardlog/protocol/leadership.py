"""What a replica keeps only while it leads."""

from __future__ import annotations

from typing import NamedTuple

from shardlog.protocol.cursor import Cursor
from shardlog.protocol.effects import Limits
from shardlog.protocol.entry import EntryId, Header, Member
from shardlog.protocol.messages import CursorStatus, Kept, Reconfiguration
from shardlog.protocol.quorum import Ensemble, QuorumPolicy, reached
from shardlog.protocol.sessions import SessionTable

FETCHING_MAX = 8
"""So many new nodes are looked at; there is hardly ever more than one."""


class Waiter(NamedTuple):
    """A client that waits for the commit of an entry.

    `result` is its base; or, for a registration, which has session 0, the session's name.
    """

    client: str
    session: int
    number: int
    result: int


class PendingRead(NamedTuple):
    """A client that waits for proof that nobody else leads: a quorum's echo of `beat`."""

    client: str
    nonce: int
    start: int
    entries_max: int
    beat: int


class Leadership:
    """From BecomeLeader until the role is lost; reconfigurations raise the epoch within it."""

    __slots__ = (
        "beat",
        "beat_ms",
        "change",
        "covered",
        "cursors",
        "ensemble",
        "epoch_first",
        "fetching",
        "found",
        "kept",
        "losses",
        "needless",
        "opened",
        "operator",
        "paused_until_ms",
        "policy",
        "reads",
        "rested_ms",
        "resting",
        "serving",
        "sources",
        "tenure_first",
        "tip",
        "told",
        "tries",
        "trimmed",
        "used_ms",
        "waiters",
    )

    def __init__(
        self,
        ensemble: Ensemble,
        policy: QuorumPolicy,
        kept: Kept,
        sources: tuple[Member, ...],
        losses: tuple[Header, ...] = (),
        found: tuple[EntryId, ...] = (),
    ) -> None:
        self.ensemble = ensemble
        self.policy = policy
        # What the log must be before the epoch is opened, and who may supply it.
        self.kept = kept
        self.sources = sources
        # What may be given up, by the word of people; but of `found` a copy has answered.
        self.losses = losses
        self.found = found
        # And which of that stands in the log all the same; told when the epoch is open.
        self.needless: tuple[EntryId, ...] = ()
        self.tries = 0
        # Whether the epoch-start entry has been written: only then clients are served.
        self.serving = False
        # The last epoch whose start is durable; cursors are announced only from then on.
        self.opened = 0
        self.operator = ""
        self.cursors: dict[Member, Cursor] = {}
        # New nodes that fetch a snapshot here: from where on each asked last, and when.
        self.fetching: dict[Member, tuple[int, int]] = {}
        # Where this leader's first epoch, and its current one, begin; tenure_first ≤ epoch_first.
        self.tenure_first = kept.end
        self.epoch_first = kept.end
        # The reconfiguration in progress; covered only if there is one.
        self.change: Reconfiguration | None = None
        self.covered = False
        # Up to where to trim once it can be: asked for, or told by a follower.  0 if it is done.
        self.trimmed = 0
        self.waiters: dict[int, list[Waiter]] = {}
        self.reads: list[PendingRead] = []
        self.beat = 0
        self.beat_ms = -1
        self.paused_until_ms = -1
        # The commit offset that the last heartbeat told; whether the next one may take its time,
        # and when the last one was sent of which this was so.
        self.told = -1
        self.resting = False
        self.rested_ms = -1
        # Folded to the end of the log, the uncommitted suffix included: it admits requests.
        self.tip = SessionTable()
        # When sessions were last used, as far as this leader knows (`session_idle_ms`).
        self.used_ms: dict[int, int] = {}

    def members(self) -> Ensemble:
        """The ensemble that is announced: the final one while a change is under way."""
        return self.change.after if self.change else self.ensemble

    def deciding_ensembles(self) -> tuple[Ensemble, ...]:
        """Those that must hold an entry before it is committed (rule 7)."""
        if self.change and self.covered:
            return (self.ensemble, self.change.after)
        return (self.ensemble,)

    def counted(self, me: Member, own_end: int) -> dict[Member, int]:
        """Whose acks count, and how far each reaches: no standby, no leaving node, no lost one."""
        leaving = self.change.old if self.change else None
        ends = {
            member: cursor.acked
            for member, cursor in self.cursors.items()
            if counts(cursor) and member != leaving
        }
        ends[me] = own_end
        return ends

    def quorum_fresh(self, me: Member, now_ms: int, limits: Limits) -> bool:
        """Whether a replication quorum was heard lately, of every deciding ensemble.

        Who rests hears more seldom.
        """
        silence_ms = limits.quorum_silence_ms
        if self.rested_ms >= 0 and now_ms - self.rested_ms < silence_ms + limits.slack_ms:
            silence_ms += limits.slack_ms
        return self.heard_by_quorum(me, now_ms - silence_ms)

    def is_quiet(self, commit: int, end: int) -> bool:
        """Whether nothing is under way, and every follower has heard so."""
        if self.told != commit or commit != end or self.change or self.reads or self.waiters:
            return False
        return all(
            each.announced
            and not each.lost
            and each.at == end
            and (each.standby or each.beat == self.beat)
            for each in self.cursors.values()
        )

    def heard_by_quorum(self, me: Member, since_ms: int) -> bool:
        """Whether every deciding ensemble has a replication quorum heard at or after `since_ms`."""
        heard = {member for member, each in self.cursors.items() if each.heard_ms >= since_ms}
        return self._quorum(heard | {me})

    def echoed_by_quorum(self, me: Member, beat: int) -> bool:
        """Whether a quorum has echoed `beat`, hence had not been fenced away when it was sent."""
        echoed = {m for m, each in self.cursors.items() if each.beat >= beat and counts(each)}
        return self._quorum(echoed | {me})

    def cursor_statuses(self, now_ms: int) -> tuple[CursorStatus, ...]:
        """For the coordinator: only followers that have accepted the announcement, or are lost."""
        return tuple(
            CursorStatus(
                member,
                each.at if each.standby else each.acked,
                each.standby,
                each.lost,
                now_ms - each.heard_ms,
                each.sent_bytes,
            )
            for member, each in sorted(self.cursors.items())
            if each.announced or each.lost
        )

    def note_fetching(self, member: Member, at: int, now_ms: int) -> None:
        if member in self.fetching or len(self.fetching) < FETCHING_MAX:
            self.fetching[member] = at, now_ms

    def behind(self, now_ms: int, heard_ms: int) -> list[int]:
        """Where those are who are sent old entries, and were heard within so long."""
        since_ms = now_ms - heard_ms
        fetching = [at for at, asked_ms in self.fetching.values() if asked_ms >= since_ms]
        return fetching + [
            each.at
            for each in self.cursors.values()
            if each.fed and not each.lost and each.heard_ms >= since_ms
        ]

    @property
    def starving(self) -> bool:
        """Whether a follower lacks old entries that may not be sent right now."""
        return any(each.starved for each in self.cursors.values())

    def _quorum(self, members: set[Member]) -> bool:
        return all(
            reached(self.policy.of(len(each)).replication, each, members)
            for each in self.deciding_ensembles()
        )


def counts(cursor: Cursor) -> bool:
    """A standby never counts (T12), nor does a follower that lost what it had acknowledged."""
    return not cursor.standby and not cursor.lost
