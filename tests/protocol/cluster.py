"""Replicas and coordinators, wired by an instant network and a perfect store.

What is sent arrives, at once and in order, unless a test cuts, holds or kills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from random import Random
from typing import Any

from protocol.harness import CLIENT, LIMITS, MAJORITY, OPERATOR, SHARD, Disk, Node, only, sent
from shardlog.protocol.choice import Decision, decide
from shardlog.protocol.coordination import (
    Accepted,
    Alerted,
    Command,
    Commanded,
    CompareAndSwap,
    CoordinatorLimits,
    CreateShard,
    Load,
    NobodyListens,
    Rejected,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import (
    Disconnected,
    Limits,
    Received,
    Send,
    SendEntries,
    SendFetched,
    ServeRead,
    Sync,
    Synced,
    Tick,
)
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import (
    Append,
    BecomeLeader,
    Create,
    Envelope,
    Fence,
    FenceAnswer,
    Message,
    Register,
    Registered,
)
from shardlog.protocol.mood import Mood, mood_of
from shardlog.protocol.quorum import Ensemble, QuorumPolicy
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.protocol.states import Role
from shardlog.sim.scheduler import Scheduler
from shardlog.sim.seal import seal_body
from shardlog.sim.store import Store

TICK_MS = 25
LOOK_MS = 100


class Cluster:
    """Nodes, coordinators and their store.  A test cuts links, holds messages, kills, and reads."""

    def __init__(
        self,
        nodes: str = "abc",
        operators: Iterable[str] = (),
        limits: Limits = LIMITS,
        policy: QuorumPolicy = MAJORITY,
    ) -> None:
        self.nodes = {name: Node(name, limits) for name in nodes}
        self.policy = policy
        self.draws = 0
        self.coordinators = {name: self._coordinator(name) for name in operators}
        self.scheduler = Scheduler()
        self.store = Store(self.scheduler, Random(0), latency_us=0)
        self.store.watchers.append(self._stored)
        self.now_ms = 0
        self.down: set[str] = set()
        self.cut: set[tuple[str, str]] = set()
        # Nodes at whose address operators find nobody listening, whether they run or not.
        self.unheeded: set[str] = set()
        self.hold: Callable[[Envelope], bool] = lambda envelope: False
        self.held: list[Envelope] = []
        # All that happened, for a test to look at; `on_line` may kill whoever it likes.
        self.replies: list[Any] = []
        self.delivered: list[Envelope] = []
        self.records: list[Shard] = []
        self.lines: list[str] = []
        self.on_line: Callable[[str], None] = lambda line: None
        # What any replica ever called committed, by base; and who leads, by epoch.
        self.chain: dict[int, int] = {}
        self.voices: dict[int, Member] = {}
        # What each coordinator knows of each node, by looking at it; whether they look at all.
        self.looking = True
        self.moods: dict[tuple[str, str], Mood | None] = {}
        self._lives: Counter[str] = Counter()
        self._draws = count(1)
        self._numbers = count(1)

    def _coordinator(self, name: str) -> Coordinator:
        self.draws += 1
        return Coordinator(name, SHARD, CoordinatorLimits(), self.draws << 32)

    @property
    def record(self) -> Shard:
        assert self.store.record
        return self.store.record

    @property
    def led_by(self) -> str:
        """The leader's node, by the record."""
        assert self.record.leader
        return self.record.leader.node

    # --- as the operator and as a client ---

    def create(self) -> None:
        for name in self.nodes:
            self.tell(name, Create())

    @property
    def ensemble(self) -> Ensemble:
        return tuple(node.member for node in self.nodes.values())

    def tell(self, name: str, message: Message, src: str = OPERATOR) -> list[Any]:
        """Send, let everything happen, and return what comes back to people."""
        before = len(self.replies)
        self._send(self.nodes[name].envelope(message, src))
        self.settle()
        return self.replies[before:]

    def fence(self, epoch: int, names: str) -> dict[Member, FenceAnswer]:
        answers = [sent(self.tell(name, Fence(epoch)), FenceAnswer) for name in names]
        return {each.member: each for found in answers for each in found if each.epoch == epoch}

    def elect(self, epoch: int, names: str, ensemble: Ensemble | None = None) -> Node:
        """What a coordinator does: fence `names`, decide, BecomeLeader."""
        ensemble = ensemble or self.ensemble
        answers = self.fence(epoch, names)
        decision = decide(answers, (ensemble,), self.policy)
        assert isinstance(decision, Decision), decision
        leader, kept, sources = decision.leader, decision.kept, decision.sources
        others = [each for each in ensemble if each in answers and each != leader]
        followers = tuple(answers[each] for each in others)
        message = BecomeLeader(epoch, ensemble, self.policy, kept, sources, followers)
        self.tell(leader.node, message)
        return self.nodes[leader.node]

    def leader(self) -> Node:
        leaders = [each for each in self.nodes.values() if each.replica.role is Role.LEADER]
        return max(leaders, key=lambda node: node.replica.epoch)

    def register(self, to: Node | None = None) -> int:
        answers = self.tell((to or self.leader()).name, Register(next(self._numbers)), CLIENT)
        return only(answers, Registered).session

    def append(self, session: int, request: int, body: bytes = b"x", to: Node | None = None) -> Any:
        """The answer, Appended or ClientRefused, or None if there is none (yet)."""
        message = Append(session, request, 1, body, seal_body(body))
        answers = self.tell((to or self.leader()).name, message, CLIENT)
        return answers[-1] if answers else None

    def command(self, command: Command, operator: str = OPERATOR) -> Accepted | Rejected | None:
        before = len(self.replies)
        self._step(operator, Commanded(next(self._numbers), command))
        self.settle()
        answers = [each for each in self.replies[before:] if isinstance(each, Accepted | Rejected)]
        return answers[-1] if answers else None

    def bring_up(self, names: str = "abc") -> Node:
        """Create the shard by command, and wait for its first leader."""
        self.run(TICK_MS)
        operator = next(iter(self.coordinators))
        answer = self.command(CreateShard(tuple(names), self.policy), operator)
        assert isinstance(answer, Accepted), answer
        self.run(500)
        return self.leader()

    # --- what a test does to it ---

    def kill(self, name: str) -> None:
        self.down.add(name)
        self._lives[name] += 1
        if name in self.unheeded:
            for other in self.nodes:
                self._step(other, Disconnected(name))

    def revive(self, name: str) -> None:
        self.down.discard(name)
        if name in self.nodes:
            self.nodes[name].restart()
        else:
            self.coordinators[name] = self._coordinator(name)

    def wipe(self, name: str) -> None:
        """A new volume under the old name."""
        self.nodes[name].disk = Disk()
        self.nodes[name].restart()

    def restore(self, record: Shard) -> None:
        """The metadata comes back from an old backup, and with it fresh operators."""
        self.store.record = record
        self.store.revision += 1
        for name in self.coordinators:
            self.kill(name)
            self.revive(name)

    def release(self) -> None:
        held, self.held, self.hold = self.held, [], lambda envelope: False
        for envelope in held:
            self._send(envelope)
        self.settle()

    def part(self, *names: str) -> None:
        """Cut every link between these nodes."""
        self.cut |= {(src, dst) for src in names for dst in names if src != dst}

    def run(self, ms: int) -> None:
        for _ in range(0, ms, TICK_MS):
            self.now_ms += TICK_MS
            for name in (*self.nodes, *self.coordinators):
                self._step(name, Tick())
            self.settle()
            if self.looking and self.now_ms % LOOK_MS == 0:
                self._look()
                self.settle()

    def run_until(self, done: Callable[[], bool], ms: int) -> None:
        for _ in range(0, ms, TICK_MS):
            if done():
                return
            self.run(TICK_MS)
        raise AssertionError(f"not within {ms} ms")

    def settle(self) -> None:
        self.scheduler.run()

    def _look(self) -> None:
        """What the driver of many shards does instead of asking for each of them."""
        for operator in self.coordinators:
            for node in self.nodes:
                key = (operator, node)
                cut = key in self.cut or (node, operator) in self.cut
                answers = node not in self.down and node not in self.unheeded and not cut
                mood = mood_of(self.nodes[node].replica, self.now_ms) if answers else None
                if self.moods.get(key) != mood:
                    self.moods[key] = mood
                    self._step(operator, Alerted())

    # --- the driver's part ---

    def _later(self, name: str) -> Callable[[Any], None]:
        """Take an event to this life of a process."""
        return partial(self._arrive, name, self._lives[name])

    def _arrive(self, name: str, life: int, event: Any) -> None:
        if life == self._lives[name]:
            self._step(name, event)

    def _step(self, name: str, event: Any) -> None:
        if name in self.down:
            return
        if name not in self.nodes:
            self._perform(name, self.coordinators[name].step(self.now_ms, event))
            return
        node = self.nodes[name]
        node.now_ms = self.now_ms
        self._perform(name, node.step(event))
        if node.replica.role is Role.LEADER:
            voice = self.voices.setdefault(node.replica.epoch, node.member)
            assert voice == node.member, f"{voice} and {node.member} lead {node.replica.epoch}"
        if node.replica.commit != node.checked:
            node.checked = node.replica.commit
            self._check_chain(node.replica)

    def _perform(self, name: str, effects: Iterable[object]) -> None:
        for effect in effects:
            if name in self.down:
                return
            if isinstance(effect, Send):
                self._send(effect.envelope)
            elif isinstance(effect, SendEntries | SendFetched | ServeRead):
                envelope = self.nodes[name].read(effect)
                if envelope:
                    self._send(envelope)
            elif isinstance(effect, Sync):
                self.scheduler.after(0, self._later(name), Synced(effect.token))
            elif isinstance(effect, Load):
                self.store.load(self._later(name))
            elif isinstance(effect, CompareAndSwap):
                self.store.compare_and_swap(effect, self._later(name))
            elif isinstance(effect, Accepted | Rejected):
                self.replies.append(effect)
            else:
                self.nodes[name].disk.perform(effect)

    def _stored(self, version: int, record: Shard | None) -> None:
        if record is None:
            self._line("metadata: no record")
        else:
            self.records.append(record)
            self._line(f"metadata: {record.phase or record.status} {record.epoch}")
        for name in self.coordinators:
            self.store.tell(self._later(name))

    def _send(self, envelope: Envelope) -> None:
        src, dst, message = envelope.src, envelope.dst, envelope.message
        if dst in self.unheeded and src in self.coordinators:
            event = NobodyListens(Member(dst, envelope.dst_incarnation))
            self.scheduler.after(0, self._later(src), event)
            return
        if (src, dst) in self.cut:
            return
        if self.hold(envelope):
            self.held.append(envelope)
            return
        self.delivered.append(envelope)
        if dst in self.nodes or dst in self.coordinators:
            draw = next(self._draws) if isinstance(message, Create) else 0
            self.scheduler.after(0, self._later(dst), Received(envelope, draw))
        else:
            self.replies.append(message)
        self._line(f"{src} → {dst}: {type(message).__name__}")

    def _line(self, line: str) -> None:
        self.lines.append(line)
        self.on_line(line)

    def _check_chain(self, r: Replica) -> None:
        """NoLogDivergence, over all that was ever committed anywhere."""
        for header in r.log.headers:
            if header.base < r.commit and header.base not in r.log.marks:
                known = self.chain.setdefault(header.base, header.checksum)
                assert known == header.checksum, f"{r.member} committed another {header.id}"
