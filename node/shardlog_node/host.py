"""One node's replicas: each with its driver and its files, all on one volume.

Envelopes come in from whatever plane, are verified, and go to the replica they name; what a replica
says goes to a call that waits for it, or out.  A replica whose disk failed is stopped at once and
opened again after a while: a start believes only what is on the medium.

Files that were damaged beyond that are as good as an emptied volume: nobody knows any more what was
promised there.  So whoever asks is told that there is no such replica; it never votes again, and
the coordinator has another one made in its place.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardlog.checksum import seal
from shardlog.protocol.effects import (
    Disconnected,
    Disk,
    Distrusted,
    Event,
    Limits,
    Received,
    Recovered,
    RewriteEntry,
    Synced,
    Tick,
    WriteEntries,
)
from shardlog.protocol.entry import Entry, Header, Member
from shardlog.protocol.failures import Illegal, ImpossibleState, NoReplica
from shardlog.protocol.messages import (
    Append,
    ClientRefused,
    Create,
    Envelope,
    Message,
    Read,
    Refused,
    Register,
)
from shardlog.protocol.replica import FROM_CLIENTS, Replica
from shardlog.protocol.replica_state import UNANSWERED
from shardlog.protocol.states import Role
from shardlog.storage.changes import Tended
from shardlog.storage.failures import Damaged, DiskFull, StorageFailure
from shardlog.storage.store import Store
from shardlog.storage.volume import Hosted, Volume
from shardlog_node.driver import Driver
from shardlog_node.giving_way import Gate
from shardlog_node.pacing import Pace, PaceLimits, ShardPace
from shardlog_node.ticking import Ticking
from shardlog_node.verifying import is_intact

SHARD_NAME = re.compile(r"[!-~]{1,80}")
"""What the metadata store has as a key; short enough for a directory, however it is written."""
FOUND_BY = ("recovery", "read", "scrub")
"""Who finds damage: a start, whoever reads, or the scrubber."""
BACKLOG_TICKS = 50
"""A leader whose disk has been too far behind for so long hands over."""
CLOSED_AT, OPEN_AT = 2, 4
"""Parts of what may wait for a leader's disk: where appends begin to wait, and where they go on."""
KEPT_BYTES = 64 << 20
"""Of what a replica lacked the last so many bytes stay in memory: the rest is hardly read soon."""
PACE_TURNS = 2
"""How often those that feed others are told how much they may send."""


@dataclass(frozen=True, slots=True)
class HostLimits:
    """A replica that failed is opened again after `reopen_ms`."""

    tick_ms: int = 10
    reopen_ms: int = 1000


class HostedReplica:
    """One replica that is running here; it is its driver's disk."""

    __slots__ = (
        "_backlog_ticks",
        "_clock_ms",
        "_host",
        "_hosted",
        "driver",
        "found_bad",
        "gate",
        "on_failed",
        "pace",
        "stopped",
    )

    def __init__(
        self,
        host: NodeHost,
        shard: str,
        on_failed: Callable[[HostedReplica, Exception], None],
        lost: bool = False,
    ) -> None:
        self._host = host
        self._clock_ms = host.clock_ms
        self.on_failed = on_failed
        # How many entries were found damaged, by whom.
        self.found_bad = Counter(dict.fromkeys(FOUND_BY, 0))
        self.stopped = False
        self.pace = ShardPace()
        self.gate = Gate()
        self._backlog_ticks = 0
        self._hosted: Hosted
        opened = host.volume.blank if lost else host.volume.open
        self._hosted, recovered = opened(shard, self._synced, self._disk_failed)
        if recovered is not None:
            self.found_bad["recovery"] = len(recovered.marks)
        replica = self._replica(host, shard, recovered)
        self.driver = Driver(replica, self, host.send)

    def _replica(self, host: NodeHost, shard: str, recovered: Recovered | None) -> Replica:
        store = self._hosted.store
        if recovered is None:
            return Replica(shard, host.name, host.limits, seal, store)
        return Replica.restart(shard, host.name, host.limits, seal, recovered, store)

    @property
    def replica(self) -> Replica:
        return self.driver.replica

    @property
    def repaired(self) -> int:
        """Entries that were written anew."""
        return self.replica.repaired

    @property
    def store(self) -> Store:
        return self._hosted.store

    def quorum_fresh(self) -> bool:
        """Whether this replica leads, and has lately heard a replication quorum."""
        replica = self.replica
        lead = replica.lead
        now_ms = max(replica.now_ms, self._clock_ms() + replica.set_back_ms)
        return lead is not None and lead.quorum_fresh(replica.member, now_ms, replica.limits)

    def tick(self, draining: bool) -> None:
        """One whose disk is full, or far too slow for long, should not lead."""
        replica = self.replica
        if replica.role is not Role.NOT_MEMBER:
            self._backlog_ticks = self._backlog_ticks + 1 if replica.backlogged(CLOSED_AT) else 0
            slow = self._backlog_ticks >= BACKLOG_TICKS
            stalled = self.store.stalled
            replica.draining = draining or slow or stalled is not None
            replica.full = isinstance(stalled, DiskFull)
            if replica.needs_tick(self._clock_ms()):
                self.step(Tick())

    def step(self, event: Event) -> None:
        self.steps((event,))

    def steps(self, events: Sequence[Event]) -> None:
        """Whatever goes wrong in a step stops the replica, before it does harm.

        The machine has moved on then, and not all that it asked for has been done.
        """
        if self.stopped:
            return
        try:
            self.driver.steps(self._clock_ms(), events)
        except Exception as failure:
            self.stop(failure)
            if not isinstance(failure, ImpossibleState | StorageFailure):
                raise
        else:
            self._host.ticking.stepped(self)
            self._host.on_stepped(self)

    def stop(self, failure: Exception) -> None:
        """Nothing more is done, not even what was asked for already."""
        self.stopped = True
        self.driver.stop()
        self.store.abandon()
        self.on_failed(self, failure)

    # --- the driver's disk -----------------------------------------------------------------------

    def submit(self, effect: Disk) -> None:
        if isinstance(effect, WriteEntries):
            self._host.pace.wrote(self)
            transfer = self.replica.transfer
            self._hosted.store.passing = (
                transfer is not None and transfer.left_bytes(self.replica.log.end) > KEPT_BYTES
            )
        elif isinstance(effect, RewriteEntry):
            self.replica.repaired += 1
        self._hosted.submit(effect)

    def read(self, header: Header) -> Entry | None:
        entry = self._hosted.store.read(header)
        if entry is None:
            self.found_bad["read"] += 1
        return entry

    def tend(self, change: Tended) -> None:
        """What the node asks for by itself."""
        self._hosted.tend(change)

    def read_run(self, headers: Sequence[Header]) -> tuple[Entry, ...]:
        found = self._hosted.store.read_run(headers)
        if len(found) < len(headers):
            self.found_bad["read"] += 1
        return found

    def _synced(self, token: int) -> None:
        self.step(Synced(token))
        if self.gate.closed:
            self._host.free(self)

    def shut(self) -> None:
        """Close the gate while too much waits for our disk; one that has no room refuses."""
        replica = self.replica
        leads = replica.lead is not None and self.store.stalled is None
        self.gate.closed = leads and replica.backlogged(OPEN_AT if self.gate.closed else CLOSED_AT)

    def _disk_failed(self, failure: StorageFailure) -> None:
        self.stop(failure)


class NodeHost:
    """`send_out` takes what is for other nodes and for clients; it may drop it.

    `draw` gives a random incarnation.  `run` is a task for as long as the node lives.
    """

    def __init__(
        self,
        name: str,
        volume: Volume,
        send_out: Callable[[Envelope], None],
        clock_ms: Callable[[], int],
        draw: Callable[[], int],
        limits: Limits | None = None,
        host_limits: HostLimits | None = None,
        pace_limits: PaceLimits | None = None,
    ) -> None:
        self.name = name
        self.volume = volume
        self.send_out = send_out
        self.clock_ms = clock_ms
        self.draw = draw
        self.limits = limits or Limits()
        self.host_limits = host_limits or HostLimits()
        self.pace = Pace(pace_limits or PaceLimits())
        self._paced_s = 0.0
        # Told after each step of a replica, and of shards whose replica has stopped.
        self.on_stepped: Callable[[HostedReplica], None] = lambda replica: None
        self.on_stopped: Callable[[str], None] = lambda shard: None
        # Whether this node is about to stop.
        self.draining = False
        self.replicas: dict[str, HostedReplica] = {}
        self.ticking = Ticking(
            self.replicas.values, lambda: self.draining, self.host_limits.tick_ms
        )
        # Replicas that cannot run, and why.
        self.failed: dict[str, Exception] = {}
        # Those of them whose files can never be opened again.
        self.lost: set[str] = set()
        # Stores of replicas that were stopped, which may still have something on its way.
        self._ending: dict[str, Store] = {}
        # Messages with entries that were not as they were made, by the node that sent them.
        self.damaged: Counter[str] = Counter()
        self._calls: dict[str, asyncio.Future[Envelope]] = {}
        self._called = 0

    async def run(self) -> None:
        """Open what is on the volume, and tick until cancelled."""
        for shard in self.volume.shards():
            self._open(shard)
        volume = asyncio.create_task(self.volume.run())
        self._paced_s = asyncio.get_running_loop().time()
        self.ticking.start(self._turn)
        try:
            await asyncio.wait((volume, self.ticking.ended), return_when=asyncio.FIRST_COMPLETED)
            (volume if volume.done() else self.ticking.ended).result()
        finally:
            self.ticking.stop()
            volume.cancel()
            await asyncio.gather(volume, return_exceptions=True)

    def _turn(self, number: int) -> None:
        if number % PACE_TURNS == 0:
            now_s = asyncio.get_running_loop().time()
            passed_s, self._paced_s = now_s - self._paced_s, now_s
            self.pace.tick(self.replicas.values(), passed_s)
            for hosted in list(self.pace.narrow):
                self.free(hosted, passed_s)

    def free(self, hosted: HostedReplica, passed_s: float = 0.0) -> None:
        """Appends that had to wait, and need not any more."""
        hosted.shut()
        freed = hosted.gate.refill(passed_s)
        if not hosted.gate.narrow:
            self.pace.narrow.pop(hosted, None)
        if freed:
            hosted.steps(self._events(freed))
            self._shut(hosted)

    def _shut(self, hosted: HostedReplica) -> None:
        hosted.shut()
        if hosted.gate.closed:
            self.pace.narrow[hosted] = None

    # --- replicas --------------------------------------------------------------------------------

    def _open(self, shard: str) -> HostedReplica | None:
        self._forgive(shard)
        try:
            opened = HostedReplica(self, shard, self._stopped)
        except (StorageFailure, ImpossibleState) as failure:
            if isinstance(failure, Damaged):
                self.lost.add(shard)
            self._give_up(shard, failure)
            return None
        self.replicas[shard] = opened
        return opened

    def _forgive(self, shard: str) -> None:
        self.failed.pop(shard, None)
        self.lost.discard(shard)

    def _addressed(self, shard: str) -> HostedReplica | None:
        """For a message of a coordinator or another node; also where there is no replica (yet)."""
        if not SHARD_NAME.fullmatch(shard):
            return None
        if shard in self.lost:
            standing_in = HostedReplica(self, shard, self._stopped, lost=True)
            self.replicas[shard] = standing_in
            return standing_in
        return None if shard in self.failed else self._open(shard)

    def _stopped(self, replica: HostedReplica, failure: Exception) -> None:
        shard = replica.replica.shard
        if self.replicas.get(shard) is replica:
            del self.replicas[shard]
            self._ending[shard] = replica.store
            self._give_up(shard, failure)
            self.on_stopped(shard)

    def _give_up(self, shard: str, failure: Exception) -> None:
        """For now; what is wrong may be mended, or may go away."""
        self.failed[shard] = failure
        self._try_later(shard)

    def _open_again(self, shard: str) -> None:
        """Not before what its predecessor had on its way to the disk is there."""
        ending = self._ending.get(shard)
        if ending is not None and ending.running:
            self._try_later(shard)
        elif shard in self.failed:
            self._ending.pop(shard, None)
            self._open(shard)

    def _try_later(self, shard: str) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self.host_limits.reopen_ms / 1000, self._open_again, shard)

    # --- envelopes -------------------------------------------------------------------------------

    def incarnation(self, shard: str) -> int:
        """Of the replica here; 0 if there is none."""
        hosted = self.replicas.get(shard)
        return 0 if hosted is None else hosted.replica.incarnation

    def receive(self, envelope: Envelope) -> None:
        self.receive_all(envelope.shard, [envelope])

    def receive_all(self, shard: str, envelopes: Sequence[Envelope]) -> None:
        """For one shard, from whatever plane."""
        replica = self.replicas.get(shard)
        if replica is not None and replica.gate.narrow:
            envelopes = replica.gate.admit(envelopes)
            if not envelopes:
                return
        events = self._events(envelopes)
        if replica is None and any(type(each.message) not in FROM_CLIENTS for each in envelopes):
            replica = self._addressed(shard)
        if replica is None:
            self._refuse(envelopes)
            return
        replica.steps(events)
        self._shut(replica)
        if replica.replica.role is Role.NOT_MEMBER and not replica.replica.promises:
            self.replicas.pop(shard, None)
        elif shard in self.lost and not replica.stopped:
            self._forgive(shard)  # another one is being made in its place

    def _events(self, envelopes: Sequence[Envelope]) -> list[Event]:
        """What is not intact is as good as lost on its way."""
        return [
            Received(each, self.draw() if isinstance(each.message, Create) else 0)
            if self._accepts(each)
            else Distrusted(Member(each.src, each.src_incarnation))
            for each in envelopes
        ]

    def disconnected(self, node: str) -> None:
        """Nothing comes from a node any more, for now."""
        for hosted in list(self.replicas.values()):
            leader = hosted.replica.leader
            if leader is not None and leader.node == node:
                hosted.step(Disconnected(node))

    def _refuse(self, envelopes: Sequence[Envelope]) -> None:
        """There is no replica here, or none that runs; nodes and coordinators ask again.

        Unless there can be none, which they are told.
        """
        for each in envelopes:
            message = each.message
            refused: Message
            if isinstance(message, Append):
                refused = ClientRefused(message.session, message.request, NoReplica(0))
            elif isinstance(message, Register | Read):
                refused = ClientRefused(0, message.nonce, NoReplica(0))
            elif not SHARD_NAME.fullmatch(each.shard) and type(message) not in UNANSWERED:
                refused = Refused(type(message).__name__, 0, Illegal("no name of a shard"))
            else:
                continue
            back = Envelope(each.shard, self.name, 0, each.src, each.src_incarnation, refused)
            self.send(back)

    def _accepts(self, envelope: Envelope) -> bool:
        message = envelope.message
        if is_intact(message):
            return True
        if isinstance(message, Append):
            refusal = Illegal("the body does not match its checksum")
            refused = ClientRefused(message.session, message.request, refusal)
            self.send(Envelope(envelope.shard, self.name, 0, envelope.src, 0, refused))
        else:
            self.damaged[envelope.src] += 1
        return False

    def distrust(self, shard: str, source: Member) -> None:
        """What it sent for a shard could not even be taken apart."""
        self.damaged[source.node] += 1
        replica = self.replicas.get(shard)
        if replica is not None:
            replica.step(Distrusted(source))

    def send(self, envelope: Envelope) -> None:
        """To the call that waits for it, or out."""
        waiting = self._calls.get(envelope.dst)
        if waiting is None:
            self.send_out(envelope)
        elif not waiting.done():
            waiting.set_result(envelope)

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope:
        """What this node answers; `TimeoutError` if it does not."""
        name, answer = self._begin_call()
        try:
            self.receive(replace(envelope, src=name, src_incarnation=0))
            async with asyncio.timeout(timeout_ms / 1000):
                found = await answer
        finally:
            del self._calls[name]
        return replace(found, dst=envelope.src, dst_incarnation=envelope.src_incarnation)

    def answer_at_once(self, envelope: Envelope) -> Envelope | None:
        """What this node answers without waiting for a disk, or for anybody; None if nothing."""
        name, answer = self._begin_call()
        try:
            self.receive(replace(envelope, src=name, src_incarnation=0))
        finally:
            del self._calls[name]
        if not answer.done():
            return None
        back = answer.result()
        return replace(back, dst=envelope.src, dst_incarnation=envelope.src_incarnation)

    def _begin_call(self) -> tuple[str, asyncio.Future[Envelope]]:
        """Every call has a name of its own, so that its answer finds it, however late."""
        self._called += 1
        name = f"call {self._called}"
        answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self._calls[name] = answer
        return name, answer
