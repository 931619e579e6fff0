"""The coordinator machine: elects, reconfigures and looks after one shard.

`step(now_ms, event)` returns effects, as a replica does.  It is driven by levels, not edges: each
step looks at the record and at what has been heard, and does the next thing that is due.  What
it writes comes back as `Swapped`; a write that lost its race brings the record that won.

An answer of the metadata store may be late, or never come.  After a while the coordinator waits no
longer for it, and reads the record before it does anything else.  If its write stood the record
shows it; whose write that was it does not ask, so an election is started over (rule 1).

That there is no record has no version to go by, so an old answer looks like a new one.  Whoever
holds a record and hears that there is none reads it again, and believes what that says.

A tick that is not due does nothing, and `wait_ms` tells when the next one is: a driver of many
shards sleeps meanwhile.
"""

from __future__ import annotations

from shardlog.protocol import deleting, due, electing, handing_over, pacing, reconfiguring, tending
from shardlog.protocol.coordination import (
    BUSY,
    Alerted,
    Commanded,
    CoordinatorEffect,
    CoordinatorEvent,
    LeadersCounted,
    Loaded,
    NobodyListens,
    Swapped,
)
from shardlog.protocol.coordinator_state import CoordinatorState, Intent
from shardlog.protocol.effects import Received, Tick
from shardlog.protocol.messages import (
    BecameLeader,
    CannotServe,
    Committed,
    Created,
    Destroyed,
    Envelope,
    FenceAnswer,
    Prepared,
    Refused,
    SnapshotInstalled,
    SnapshotOffer,
    StatusReport,
    WritesPaused,
)
from shardlog.protocol.shard import Shard, Status


class Coordinator(CoordinatorState):
    """See the module."""

    __slots__ = ()

    def step(self, now_ms: int, event: CoordinatorEvent) -> list[CoordinatorEffect]:
        self.read_clock(now_ms)
        self.out = []
        if isinstance(event, Tick):
            self._tick()
        elif isinstance(event, Received):
            record = self.record
            if record is not None and not record.halted and event.envelope.shard == self.shard:
                self._receive(event.envelope, record)
        elif isinstance(event, Loaded):
            self._learn(event.version, event.shard)
        elif isinstance(event, Swapped):
            self._swapped(event)
        elif isinstance(event, Commanded):
            self._obey(event)
        elif isinstance(event, LeadersCounted):
            self.leaders = dict(event.leaders)
        elif isinstance(event, NobodyListens):
            tending.unheeded(self, event.member)
        elif isinstance(event, Alerted):
            pacing.alert(self)
        out, self.out = self.out, []
        return out

    def wait_ms(self, clock_ms: int) -> int | None:
        """For how long no tick is needed; None if only something else can bring work."""
        at_ms = due.due_ms(self)
        if at_ms is None:
            return None
        return max(0, at_ms - max(self.now_ms, clock_ms + self.set_back_ms))

    def _tick(self) -> None:
        if self.version < 0:
            self.load()
        elif self.writing:
            if self.now_ms - self.wrote_ms >= self.limits.write_timeout_ms:
                self.doubt_write()
                self.reject("the metadata did not answer: it may be done, or not")
        elif self.record is not None:
            self._drive(self.record)

    def _drive(self, record: Shard) -> None:
        if record.halted:
            return
        if record.status is Status.CREATING:
            tending.drive_creating(self, record)
        elif record.status is Status.ELECTION:
            electing.drive(self, record)
        elif record.status is Status.DELETING:
            deleting.drive(self, record)
        else:
            self._drive_steady(record)

    def _drive_steady(self, record: Shard) -> None:
        polling = pacing.look(self, record)
        if polling:
            tending.poll(self, record)
        if tending.must_elect(self, record):
            self.excluded = (record.leader,) if record.leader else ()
            electing.start(self, record)
            return
        if tending.tend_removed(self, record) or tending.tend_lost(self, record):
            return
        if polling:
            tending.tend_followers(self, record)
        handing_over.drive(self, record)
        if self.draining:
            handing_over.relieve(self, record)
        if record.change:
            reconfiguring.drive_change(self, record)
        elif record.joining:
            reconfiguring.drive_joining(self, record)

    def _receive(self, envelope: Envelope, record: Shard) -> None:
        message = envelope.message
        if record.status is Status.DELETING:
            deleting.heard(self, record, envelope)
        elif isinstance(message, StatusReport):
            tending.reported(self, record, message)
        elif isinstance(message, FenceAnswer):
            electing.answered(self, record, message)
        elif isinstance(message, Refused):
            tending.refused(self, record, envelope, message)
        elif isinstance(message, BecameLeader):
            if not self.writing:
                electing.became(self, record, envelope, message)
        elif isinstance(message, CannotServe):
            electing.cannot_serve(self, record, envelope, message)
        elif isinstance(message, Prepared):
            reconfiguring.prepared(self, record, envelope, message)
        elif isinstance(message, Committed):
            reconfiguring.committed(self, record, envelope, message)
        elif isinstance(message, Created):
            tending.created(self, record, envelope, message)
        elif isinstance(message, SnapshotOffer):
            reconfiguring.offered(self, record, message)
        elif isinstance(message, SnapshotInstalled):
            reconfiguring.installed(self, record, envelope, message)
        elif isinstance(message, WritesPaused):
            handing_over.paused(self, record, message)
        elif isinstance(message, Destroyed):
            tending.destroyed(self, record, envelope, message)

    def _learn(self, version: int, shard: Shard | None) -> None:
        """News of the record; while a write is in flight its answer will tell."""
        if self.writing and self.wanted is not None:
            return
        self.wait_no_longer()
        if shard is None and self.record is not None:
            self._doubt_record()
        elif version > self.version:
            self._adopt(version, shard)

    def _doubt_record(self) -> None:
        """It was deleted; or what we heard is from before it was made."""
        self.version, self.record = -1, None
        self.forget()

    def _swapped(self, event: Swapped) -> None:
        """The answer to our write, or a late one to an earlier write: that is only news.

        Who takes one for the other would drive an election that is not its own.
        """
        if event.shard is None and self.record is not None:
            self.reject("the shard was deleted meanwhile")
            self.wait_no_longer()
            self._doubt_record()
            return
        newer = self.writing and event.version > self.version
        if not newer or (event.done and event.shard != self.wanted):
            self._learn(event.version, event.shard)
            return
        self.wait_no_longer()
        if not event.done:
            self.reject("the shard changed meanwhile")
            self._adopt(event.version, event.shard)
            return
        election = self.election
        self._adopt(event.version, event.shard, mine=self.intent is Intent.ELECT)
        self.accept()
        record = self.record
        if record is None:
            return
        if election and record.status is Status.STEADY and election.epoch == record.epoch:
            electing.finished(self, record, election)
        self._drive(record)

    def _adopt(self, version: int, shard: Shard | None, *, mine: bool = False) -> None:
        """The record as it stands now; what was heard in another epoch no longer counts."""
        before = self.record
        pacing.alert(self)
        self.version, self.record = version, shard
        if shard is None:
            return
        if mine:
            electing.begun(self, shard)
        elif before is None or before.epoch != shard.epoch:
            self.forget()
        elif before.status != shard.status:
            self.election = None
            self.healthy_ms = self.changed_ms = self.now_ms
        elif before.change != shard.change or before.joining != shard.joining:
            self.changed_ms = self.now_ms
            self.sent_ms = -1
            self.created.clear()
            self.unmade.clear()
            if before.joining is None:
                self.snapshot, self.installed = None, False

    def _obey(self, event: Commanded) -> None:
        if self.command is not None or self.writing:
            waiting, self.command = self.command, event
            self.reject(BUSY)
            self.command = waiting
        elif self.version < 0:
            self.command = event
            self.reject("the metadata has not been read yet")
        else:
            self.command = event
            pacing.alert(self)
            reconfiguring.obey(self, event.command)
