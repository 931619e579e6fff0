"""The replica machine: one node's copy of one shard.

`step(now_ms, event)` takes one event and returns the effects to perform, in order.  The rules
stand in the modules beside this one, grouped by what a replica is doing: `fencing` (identity,
fences), `following`, `leading`, `changing` (reconfigurations), `serving` (clients) and
`repairing`.  Here is the one place where messages find their rule, and where durability turns
into answers: a promise is fulfilled in the step that hears of its sync, never before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardlog.protocol import changing, fencing, following, leading, repairing, serving
from shardlog.protocol.effects import (
    Disconnected,
    Distrusted,
    Effect,
    Event,
    Limits,
    Outgrown,
    ReadFailed,
    Received,
    Recovered,
    Synced,
    Tick,
)
from shardlog.protocol.entry import Seal
from shardlog.protocol.failures import Illegal, ImpossibleState, NoReplica, WrongShard
from shardlog.protocol.history import epoch_at
from shardlog.protocol.log import Archive, Log, Mark
from shardlog.protocol.messages import (
    Abort,
    Ack,
    AddFollower,
    Announce,
    Append,
    BecomeLeader,
    Commit,
    Create,
    Destroy,
    Entries,
    Envelope,
    Fence,
    FenceAnswer,
    Fetch,
    Fetched,
    Heartbeat,
    InstallSnapshot,
    Message,
    PauseWrites,
    Prepare,
    Progress,
    Read,
    Refused,
    Register,
    SnapshotOffer,
    SnapshotRequest,
    StatusRequest,
    Trim,
)
from shardlog.protocol.replica_state import Due, Promise, ReplicaState
from shardlog.protocol.sessions import SessionTable
from shardlog.protocol.states import Role

Handler = Callable[[ReplicaState, Envelope, Any], None]

HANDLERS: dict[type[Message], Handler] = {
    Fence: fencing.fence,
    Destroy: fencing.destroy,
    StatusRequest: fencing.status,
    BecomeLeader: leading.become_leader,
    AddFollower: leading.add_follower,
    FenceAnswer: leading.returned,
    Refused: leading.refused,
    Ack: leading.acked,
    Progress: leading.progressed,
    SnapshotRequest: leading.offer_snapshot,
    Trim: leading.trim,
    Prepare: changing.prepare,
    Commit: changing.commit,
    Abort: changing.abort,
    PauseWrites: changing.pause_writes,
    Announce: following.announce,
    Entries: following.entries,
    Heartbeat: following.heartbeat,
    InstallSnapshot: following.install,
    SnapshotOffer: following.offered,
    Fetch: repairing.fetch,
    Fetched: repairing.fetched,
    Register: serving.register,
    Append: serving.append,
    Read: serving.read,
}

FROM_CLIENTS = frozenset({Register, Append, Read})
"""Clients know nodes, not incarnations."""


def _entries_written(r: ReplicaState, promise: Promise) -> None:
    (leading if r.lead else following).written(r, promise)


FULFIL: dict[Due, Callable[[ReplicaState, Promise], None]] = {
    Due.CREATED: fencing.created,
    Due.DESTROYED: fencing.destroyed,
    Due.FENCED: fencing.fenced,
    Due.FOLLOWING: following.followed,
    Due.INSTALLED: following.installed,
    Due.ENTRIES: _entries_written,
    Due.LED: leading.led,
    Due.OPENED: leading.opened,
}

DUE_IN_ANY_EPOCH = frozenset({Due.CREATED, Due.DESTROYED})


class Replica(ReplicaState):
    """See the module."""

    __slots__ = ()

    @classmethod
    def restart(
        cls,
        shard: str,
        node: str,
        limits: Limits,
        seal: Seal,
        recovered: Recovered,
        archive: Archive | None = None,
    ) -> Replica:
        """Every replica comes back Fenced (rule 1)."""
        self = cls(shard, node, limits, seal, archive)
        block = recovered.superblock
        self.blank(block.incarnation)
        self.role = Role.FENCED
        self.epoch, self.led, self.history = block.epoch, block.led, block.history
        self.election, self.membership = block.election, block.membership
        self.syncing = block.syncing
        self.log = Log(recovered.first, recovered.boundary, archive)
        for header in recovered.headers:
            self.log.append(header)
        self.log.marks = dict(recovered.marks)
        self.in_doubt = block.in_doubt
        if self.log.open_tail:
            self.log.tail_slots = max(recovered.tail_slots, self.in_doubt)
        if self.in_doubt and not self.log.open_tail:
            self.log.open_at_end(epoch_at(block.history, self.log.end), self.in_doubt)
        self.commit = block.commit
        if self.commit > self.log.end:
            raise ImpossibleState(f"commit {self.commit} beyond the log's end {self.log.end}")
        self.durable_end = self.log.end
        self.sessions = SessionTable.at(block.sessions_at, block.sessions, block.session_limits)
        self.apply()
        return self

    def needs_tick(self, clock_ms: int) -> bool:
        """Whether a tick would do something, as far as can be told cheaply: if not, it need not be.

        Followers have nothing to do with time, unless something is missing.
        """
        lead = self.lead
        if self.log.marks or self.asked or self.syncing is not None:
            return True
        if lead is None:
            return False
        now_ms = max(self.now_ms, clock_ms + self.set_back_ms)
        if not lead.serving or now_ms - lead.beat_ms >= leading.pace_ms(self, lead):
            return True
        return not lead.resting and any(each.starved for each in lead.cursors.values())

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """One event in, ordered effects out."""
        return self.steps(now_ms, (event,))

    def steps(self, now_ms: int, events: Sequence[Event]) -> list[Effect]:
        """Events in, ordered effects out.  The clock may have been set, either way.

        Entries that come together are written, synced and sent together.
        """
        self.read_clock(now_ms)
        self.out = []
        for event in events:
            if isinstance(event, Received):
                self._receive(event)
            elif isinstance(event, Synced):
                self._synced(event.token)
            elif isinstance(event, Tick):
                leading.tick(self)
                repairing.tick(self)
            elif isinstance(event, ReadFailed):
                self._read_failed(event.base)
            elif isinstance(event, Distrusted):
                repairing.distrusted(self, event.source)
            elif isinstance(event, Disconnected):
                following.disconnected(self, event.node)
            elif isinstance(event, Outgrown):
                leading.outgrown(self, event.first)
        if self.owes_sync:
            self._settle()
        if len(self.log.headers) > 2 * self.limits.headers_kept:
            self._forget()
        out, self.out = self.out, []
        return out

    def _settle(self) -> None:
        """Entries may leave before our own sync; we count ourselves only after it (rule 5)."""
        self.owes_sync = False
        if self.gathered:
            self.write_gathered()
        if self.lead is not None:
            leading.replicate_all(self, self.lead)
        self.sync(Due.ENTRIES, end=self.log.end)

    def _forget(self) -> None:
        """Leave old headers to the archive; now and then take a checkpoint, but never while fenced.

        A start reads the log from the last checkpoint on.
        """
        safe = min(self.commit, self.durable_end, self.sessions.applied)
        self.forgotten += self.log.forget(safe, self.limits.headers_kept)
        if self.forgotten >= self.limits.checkpoint_entries and self.role is not Role.FENCED:
            self.persist()

    def _receive(self, event: Received) -> None:
        envelope = event.envelope
        message = envelope.message
        if envelope.shard != self.shard:
            self.refuse(envelope, WrongShard(self.shard))
        elif isinstance(message, Create):
            fencing.create(self, envelope, event.draw)
        elif not fencing.is_addressed(self, envelope, type(message) in FROM_CLIENTS):
            self.refuse(envelope, NoReplica(self.incarnation, envelope.dst_incarnation))
        else:
            handler = HANDLERS.get(type(message))
            if handler is None:
                self.refuse(envelope, Illegal("not a message for a replica"))
            else:
                handler(self, envelope, message)

    def _synced(self, token: int) -> None:
        if self.rewrites:
            self.rewrites = [rewrite for rewrite in self.rewrites if rewrite.token > token]
            self.log.mending &= {rewrite.base for rewrite in self.rewrites}
            self.apply()
        while self.promises and self.promises[0].token <= token:
            promise = self.promises.pop(0)
            if promise.epoch == self.epoch or promise.due in DUE_IN_ANY_EPOCH:
                FULFIL[promise.due](self, promise)

    def _read_failed(self, base: int) -> None:
        if self.role is not Role.NOT_MEMBER and self.log.present(base):
            self.log.mark(base, Mark.CORRUPT)
