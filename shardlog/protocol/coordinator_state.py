"""The state of a coordinator, and the means by which its rules speak.

A coordinator remembers nothing that matters: whatever it must not forget stands in the metadata,
written by compare-and-swap before it is acted on.  The rest, who answered and when, is rebuilt by
asking.  That is why any number of coordinators may run, and any of them may die anywhere.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Any

from shardlog.protocol.choice import Waiting
from shardlog.protocol.coordination import (
    Accepted,
    Commanded,
    CompareAndSwap,
    CoordinatorEffect,
    CoordinatorLimits,
    Load,
    Rejected,
)
from shardlog.protocol.effects import Send
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import Refusal
from shardlog.protocol.messages import BecomeLeader, Envelope, FenceAnswer, Message, Snapshot
from shardlog.protocol.shard import Shard
from shardlog.protocol.suspicion import Seen

ELECTION_IDS = 1 << 63
"""How many ids of elections there are."""


class Intent(StrEnum):
    """What a write in flight is for: decides what is done once it stands."""

    ELECT = "elect"
    OTHER = "other"


class Election:
    """One election, driven by the coordinator that wrote its epoch, and by no other (rule 1)."""

    __slots__ = ("answers", "asked", "epoch", "sent_ms", "started_ms", "waiting")

    def __init__(self, epoch: int, now_ms: int) -> None:
        self.epoch = epoch
        self.started_ms = now_ms
        self.sent_ms = -1
        self.answers: dict[Member, FenceAnswer] = {}
        # Set once the leader is chosen; answers that come later are kept for it (O2).
        self.asked: tuple[Member, BecomeLeader] | None = None
        # What the election waits for; None once it has decided, or before it has looked.
        self.waiting: Waiting | None = None


class CoordinatorState:
    """See the module."""

    __slots__ = (
        "alert_until_ms",
        "bad_reports",
        "changed_ms",
        "command",
        "created",
        "draining",
        "draw",
        "election",
        "elections",
        "excluded",
        "gone",
        "healthy_ms",
        "installed",
        "intent",
        "leaders",
        "limits",
        "lost",
        "name",
        "now_ms",
        "out",
        "paused_ms",
        "polled_ms",
        "record",
        "seen",
        "sent_ms",
        "set_back_ms",
        "shard",
        "snapshot",
        "target",
        "unheeded_ms",
        "unmade",
        "version",
        "wanted",
        "writing",
        "wrote_ms",
    )

    def __init__(self, name: str, shard: str, limits: CoordinatorLimits, draw: int = 0) -> None:
        """`draw` is a random number: elections get their ids from it.  0: they have none."""
        self.draw = draw
        # How many elections this coordinator has begun.
        self.elections = 0
        self.name = name
        self.shard = shard
        self.limits = limits
        # Our own time, which never goes back, and by how much the clock has been set back.
        self.now_ms = 0
        self.set_back_ms = 0
        self.out: list[CoordinatorEffect] = []
        # The record as last read or written; version 0 means that none was seen yet.
        self.version = -1
        self.record: Shard | None = None
        # At most one write is waited for, since `wrote_ms`; `wanted` is what it would make stand,
        # and None once its answer is no longer expected: then the record is being read again.
        self.writing = False
        self.wanted: Shard | None = None
        self.wrote_ms = -1
        self.intent = Intent.OTHER
        # How many shards each node leads, as far as the driver knows: it sees more than one.
        self.leaders: dict[str, int] = {}
        self.command: Commanded | None = None
        # Members whose nodes are about to stop, by their last word.
        self.draining: set[Member] = set()
        self.forget()
        self.excluded: tuple[Member, ...] = ()

    def forget(self) -> None:
        """The epoch changed: everything that was heard before belongs to the past."""
        self.election: Election | None = None
        self.seen: dict[Member, Seen] = {}
        self.created: dict[str, int] = {}
        # Nodes that cannot make the replica they were asked for yet, and why.
        self.unmade: dict[str, str] = {}
        self.gone: set[Member] = set()
        self.lost: dict[Member, int] = {}
        self.snapshot: Snapshot | None = None
        self.installed = False
        # A hand-over under way: to whom, and since when writes are paused.
        self.target: Member | None = None
        self.paused_ms = -1
        self.bad_reports = 0
        # Since when nobody has listened at the leader's address; -1 while somebody may.
        self.unheeded_ms = -1
        self.healthy_ms = self.now_ms
        self.changed_ms = self.now_ms
        self.polled_ms = -1
        self.sent_ms = -1
        # Until when the shard is looked at closely, whatever is heard of it.
        self.alert_until_ms = self.now_ms + self.limits.alert_ms

    def read_clock(self, clock_ms: int) -> None:
        """As a replica does: a clock that is set back must not stop everything."""
        if clock_ms + self.set_back_ms < self.now_ms:
            self.set_back_ms = self.now_ms - clock_ms
        self.now_ms = clock_ms + self.set_back_ms

    def next_election(self) -> int:
        """The id of an election that is about to begin."""
        self.elections += 1
        return (self.draw + self.elections) % ELECTION_IDS if self.draw else 0

    def load(self) -> None:
        self.out.append(Load())

    def write(self, shard: Shard, intent: Intent = Intent.OTHER) -> None:
        """Write before acting, and only on top of what was read."""
        self.writing = True
        self.wanted = shard
        self.wrote_ms = self.now_ms
        self.intent = intent
        self.out.append(CompareAndSwap(self.version, shard))

    def remove(self) -> None:
        """Let the record go.  Whatever comes back, it is read again before it is believed gone."""
        self.writing = True
        self.wanted = None
        self.wrote_ms = self.now_ms
        self.out.append(CompareAndSwap(self.version, None))

    def doubt_write(self) -> None:
        """No answer: read the record, again and again, before anything else is done."""
        self.wanted = None
        self.wrote_ms = self.now_ms
        self.load()

    def wait_no_longer(self) -> None:
        """It is known what stands."""
        self.writing = False
        self.wanted = None
        self.wrote_ms = -1

    def send(self, member: Member, message: Message) -> None:
        self.out.append(
            Send(Envelope(self.shard, self.name, 0, member.node, member.incarnation, message))
        )

    def accept(self) -> None:
        if self.command:
            self.out.append(Accepted(self.command.number))
            self.command = None

    def reject(self, reason: str, refusal: Refusal | None = None) -> None:
        if self.command:
            self.out.append(Rejected(self.command.number, reason, refusal))
            self.command = None

    def due_again(self) -> bool:
        """Whether it is time to repeat what has not been answered."""
        if self.sent_ms >= 0 and self.now_ms - self.sent_ms < self.limits.resend_ms:
            return False
        self.sent_ms = self.now_ms
        return True


def changed(record: Shard, **fields: Any) -> Shard:
    return replace(record, **fields)
