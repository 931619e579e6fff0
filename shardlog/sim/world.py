"""A whole shard in one process, driven by one seed.

The world owns virtual time, the only random number generator, and everything that a production
system consists of, as models.  A run has two phases.  In the first the adversary rages until
enough has happened; then everything heals, and the shard has to come to rest.  Some runs have a
third, in which the shard is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from shardlog.protocol.coordination import (
    Accepted,
    Command,
    CreateShard,
    NobodyListens,
    Rejected,
)
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Envelope
from shardlog.protocol.shard import Shard
from shardlog.protocol.states import Role
from shardlog.protocol.upkeep import USUAL, Upkeep
from shardlog.sim.ambush import Ambush
from shardlog.sim.atlas import Atlas
from shardlog.sim.clients import Client
from shardlog.sim.deletion import press, undeleted
from shardlog.sim.failures import LegalEnd, LivenessFailure
from shardlog.sim.faults import Adversary
from shardlog.sim.healing import Pace, heal, hindmost_end, out_of_reach, unsettled
from shardlog.sim.linearizability import Operation
from shardlog.sim.losses import Losses
from shardlog.sim.network import Network
from shardlog.sim.node import Node
from shardlog.sim.observer import Observer
from shardlog.sim.operators import Operator
from shardlog.sim.options import Options
from shardlog.sim.restores import Restores
from shardlog.sim.scheduler import Scheduler
from shardlog.sim.statistics import Statistics
from shardlog.sim.store import Store

CHECK_EVERY_US = 100_000
COMMAND_AGAIN_US = 200_000
LYING = 0.1
"""Of the ways between two nodes, those on which nearly all that is long comes damaged."""
CALMED_MAX = 5
"""How many times as long as planned a run may take to become large enough."""


def _tell(news: tuple[Operator, int, NobodyListens]) -> None:
    operator, generation, event = news
    if operator.generation == generation:
        operator.take(event)


class World:
    """Build it, then `run` it once."""

    shard = "s"

    def __init__(self, options: Options, observers: Sequence[Observer] = ()) -> None:
        self.options = options
        self.observers = list(observers)
        self.scheduler = Scheduler()
        self.random = Random(options.seed)
        # Apart, so that runs without damage are what they were before there was any.
        self._damaging = Random(f"damaged {options.seed}")
        self._lying: dict[tuple[str, str], bool] = {}
        self.statistics = Statistics()
        self._watch()
        self.atlas = Atlas(self)
        self.network = Network(
            self.scheduler,
            self.random,
            options.link_delay_us,
            options.loss,
            options.duplicate,
            options.reorder,
            options.echo,
            Random(f"echo {options.seed}"),
        )
        self.store = Store(
            self.scheduler, self.random, options.store_us, options.store_lost, options.store_late
        )
        self.node_names = [f"n{number}" for number in range(options.nodes)]
        self.operator_names = [f"o{number}" for number in range(options.coordinators)]
        self.nodes = {name: Node(self, name) for name in self.node_names}
        self.operators = {name: Operator(self, name) for name in self.operator_names}
        self.clients = [Client(self, number) for number in range(options.clients)]
        ends: list[Node | Operator | Client] = [*self.nodes.values(), *self.operators.values()]
        for end in (*ends, *self.clients):
            self.network.attach(end.name, end.receive)
        self.network.watchers += [partial(watch, self) for watch in self._send_watchers]
        self.store.watchers.append(self._stored)
        self._record: Shard | None = None
        self._values = 0
        self._deadline_us = options.safety_ms_max * 1000
        self._pace = Pace(0, 0)
        self.healed = False
        self.settled = False
        self.losses = Losses(self)
        self.restores = Restores(self)
        self.adversary = Adversary(self)
        self.ambush = Ambush(self)

    def _watch(self) -> None:
        """One list for each kind of event, with those who care."""

        def watchers(name: str) -> list[Callable[..., None]]:
            return [
                getattr(observer, name)
                for observer in self.observers
                if getattr(type(observer), name) is not getattr(Observer, name)
            ]

        self.step_watchers = watchers("on_step")
        self.coordinator_watchers = watchers("on_coordinator")
        self._send_watchers = watchers("on_send")
        self._store_watchers = watchers("on_store")
        self._restore_watchers = watchers("on_restore")
        self.reply_watchers = watchers("on_reply")
        self.crash_watchers = watchers("on_crash")
        self.restart_watchers = watchers("on_restart")
        self.wipe_watchers = watchers("on_wipe")
        self.fault_watchers = watchers("on_fault")
        self._end_watchers = watchers("on_end")

    def instant(self) -> int:
        """What is handled in one step happens in one of these."""
        return self.scheduler.now_us

    # --- running ---------------------------------------------------------------------------------

    def run(self) -> Statistics:
        """All phases; raises a `SimulationFailure` if something is wrong."""
        try:
            self.scheduler.after(1000, self._create, None)
            self.scheduler.after(CHECK_EVERY_US, self._check_safety, None)
            self.scheduler.run()
            self.healed = True
            heal(self)
            self._deadline_us = self.scheduler.now_us + self.options.liveness_ms_max * 1000
            longest = max(node.replica.log.end for node in self.nodes.values())
            self._pace = Pace(longest, self.scheduler.now_us)
            self.scheduler.after(CHECK_EVERY_US, self._check_liveness, None)
            self.scheduler.run()
            if self.settled and self.options.delete:
                self._deadline_us = self.scheduler.now_us + self.options.liveness_ms_max * 1000
                self._check_deletion(self.scheduler.now_us)
                self.scheduler.run()
        except LegalEnd as end:
            self.statistics.parted += end.text != "halted"
        finally:
            self._sum_up()
        for watch in self._end_watchers:
            watch(self)
        return self.statistics

    def _sum_up(self) -> None:
        self.statistics.messages = self.network.delivered
        self.statistics.conflicts = self.store.conflicts
        self.statistics.store_unanswered = self.store.unanswered
        self.statistics.store_late = self.store.answered_late
        self.statistics.virtual_ms = self.scheduler.now_us // 1000

    def _create(self, _: None) -> None:
        """The first command, given again until the shard is in the record."""
        if self.store.record is not None:
            return
        self.scheduler.after(COMMAND_AGAIN_US, self._create, None)
        up = [operator for operator in self.operators.values() if operator.up]
        if up:
            nodes = tuple(self.node_names[: self.options.members])
            self.random.choice(up).command(
                0, CreateShard(nodes, self.options.quorum, self._upkeep())
            )

    def _upkeep(self) -> Upkeep:
        return Upkeep(1, retention_bytes=1) if self.options.retained else USUAL

    def _check_safety(self, _: None) -> None:
        """Has enough happened?  If not in time, the adversary calms down bit by bit."""
        options, seen = self.options, self.statistics
        lacking = self.network.delivered < options.messages_min
        elections = seen.elections < options.elections_min
        changes = seen.changes_done < options.changes_min
        if not (lacking or elections or changes):
            self.scheduler.stop()
            return
        if self.scheduler.now_us >= self._deadline_us:
            if self.scheduler.now_us >= options.safety_ms_max * CALMED_MAX * 1000:
                self.scheduler.stop()
                return
            self._deadline_us += options.safety_ms_max * 1000
            self.adversary.calm()
        self.scheduler.after(CHECK_EVERY_US, self._check_safety, None)
        if not lacking or self.adversary.slower > 1:
            self.adversary.hurry(elections, changes)

    def _check_liveness(self, _: None) -> None:
        """Is the shard at rest?  Past the deadline it may only go on catching up."""
        reason, now_us = unsettled(self), self.scheduler.now_us
        self._pace.note(hindmost_end(self), now_us)
        if reason is None:
            self.settled = True
            self.scheduler.stop()
        elif now_us < self._deadline_us or self._pace.gains(now_us):
            self.scheduler.after(CHECK_EVERY_US, self._check_liveness, None)
        elif (unheeded := self.restores.unheeded()) is not None:
            raise LivenessFailure(unheeded)
        elif out_of_reach(self) is None:
            raise LivenessFailure(reason)
        else:
            self.statistics.out_of_reach += 1
            self.scheduler.stop()

    def _check_deletion(self, since_us: int) -> None:
        reason = undeleted(self)
        if reason is None:
            self.statistics.deletions += 1
            self.scheduler.stop()
        elif self.scheduler.now_us >= self._deadline_us:
            raise LivenessFailure(reason)
        else:
            press(self, since_us)
            self.scheduler.after(CHECK_EVERY_US, self._check_deletion, since_us)

    # --- what the parts tell each other ----------------------------------------------------------

    def damages(self, envelope: Envelope) -> bool:
        """Whether what comes with it is not as it was made: on some ways much more often."""
        chance = self.options.damaged
        if not chance or self.healed:
            return False
        way = (envelope.src, envelope.dst)
        if way not in self._lying:
            self._lying[way] = self._damaging.random() < LYING
        if self._damaging.random() >= (1 - chance if self._lying[way] else chance):
            return False
        self.statistics.damaged += 1
        return True

    def next_value(self) -> int:
        self._values += 1
        return self._values

    def is_leader(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and node.replica.role is Role.LEADER

    def history(self) -> list[Operation]:
        """All that clients did, answered or not."""
        return [operation for client in self.clients for operation in client.all_operations()]

    def _stored(self, version: int, record: Shard | None) -> None:
        before, self._record = self._record, record
        self.restores.stored(record)
        if record is not None:
            self.losses.stored(record)
        for watch in self._store_watchers:
            watch(self, version, record)
        if record is not None:
            self.statistics.count(before, record)
            self.ambush.stored(before, record)
        for operator in self.operators.values():
            if operator.up:
                operator.watch()

    def restored(self, record: Shard, text: str) -> None:
        """The store was set back to `record`."""
        self._record = record
        self.store.restore(record)
        for tell in self.fault_watchers:
            tell(self, text)
        for watch in self._restore_watchers:
            watch(self, record)
        for operator in self.operators.values():
            if operator.up:
                operator.watch()

    def nobody_listens(self, envelope: Envelope) -> None:
        """The machine of a dead process tells an operator so, unless the way back is cut."""
        operator = self.operators.get(envelope.src)
        if operator is None or not operator.up or not self.options.refusing:
            return
        back = self.network.link(envelope.dst, envelope.src)
        if not back.cuts and back.held is None:
            event = NobodyListens(Member(envelope.dst, envelope.dst_incarnation))
            self.scheduler.after(back.delay_us, _tell, (operator, operator.generation, event))

    def node_went_down(self, node: Node) -> None:
        if self.options.refusing:
            self._break_connections(node)
        self.adversary.node_went_down(node)

    def _break_connections(self, gone: Node) -> None:
        """The machine of a dead process closes its connections, where nothing is cut."""
        for node in self.nodes.values():
            way = self.network.link(gone.name, node.name)
            if node is not gone and not way.cuts and way.held is None:
                told = (node, node.generation, gone.name)
                self.scheduler.after(way.delay_us, _disconnect, told)

    def operator_went_down(self, operator: Operator) -> None:
        self.atlas.pending.clear()
        self.adversary.operator_went_down(operator)

    def command_answered(self, command: Command, answer: Accepted | Rejected) -> None:
        if command in self.atlas.pending:
            self.atlas.pending.remove(command)
        if isinstance(answer, Accepted):
            self.statistics.accepted += 1
        else:
            self.statistics.rejected += 1


def _disconnect(told: tuple[Node, int, str]) -> None:
    node, generation, gone = told
    if node.up and generation == node.generation:
        node.disconnected(gone)
