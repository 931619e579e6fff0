"""The adversary: random faults, each kind at its own rate, none beyond what the atlas allows.

Each kind is one method that does one thing and, where the thing ends by itself, schedules its end.
Nodes and coordinators also die *inside* a step, after the k-th of its effects: between two effects
is where a protocol that orders them wrongly breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shardlog.protocol.coordination import (
    AbortChange,
    Command,
    Contract,
    Expand,
    Promote,
    Swap,
    TrimShard,
)
from shardlog.protocol.history import OPEN_END
from shardlog.sim.slot import Part

if TYPE_CHECKING:
    from shardlog.sim.node import Node
    from shardlog.sim.operators import Operator
    from shardlog.sim.world import World

Kind = tuple[int, Callable[[], None]]
MEMBERS_MAX = 7
CLOCK_MS_MIN = 1000
CALM_COMMAND_US = 300_000
DRAIN_CHECK_US = 20_000
AWAY_MS = 1500


class Adversary:
    """All faults of a run; `active` until the healing."""

    __slots__ = ("active", "kinds", "number", "random", "slower", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.active = True
        # By how much rarer everything has become since the start.
        self.slower = 1
        self.number = 0
        options = world.options
        self.kinds: tuple[Kind, ...] = (
            (options.cut_every_ms, self.cut),
            (options.clog_every_ms, self.clog),
            (options.crash_every_ms, self.crash),
            (options.pause_every_ms, self.pause),
            (options.wipe_every_ms, self.wipe),
            (options.rot_every_ms, self.rot),
            (options.misdirect_every_ms, self.misdirect),
            (options.io_error_every_ms, self.io_error),
            (options.coordinator_crash_every_ms, self.coordinator_crash),
            (options.command_every_ms, self.command),
            (options.clock_step_every_ms, self.set_clock),
            (options.drain_every_ms, self.drain),
            (options.destroy_every_ms, world.losses.destroy),
            (options.power_every_ms, self.power_cut),
            (options.away_every_ms, self.take_away),
            (options.restore_every_ms, world.restores.strike),
        )
        if options.calm_ms:
            world.scheduler.after(options.calm_ms * 1000, self._storm, None)
            world.scheduler.after(CALM_COMMAND_US, self._calm_command, None)
        else:
            self._begin()

    def _begin(self) -> None:
        for every_ms, fault in self.kinds:
            if every_ms:
                self._again((every_ms, fault))

    def _storm(self, _: None) -> None:
        """The calm is over."""
        self.world.ambush.chance = self.world.options.ambush
        self._begin()

    def _calm_command(self, _: None) -> None:
        if self.world.scheduler.now_us < self.world.options.calm_ms * 1000:
            self.world.scheduler.after(CALM_COMMAND_US, self._calm_command, None)
            self.command(only=(Swap, Contract))

    def _again(self, kind: Kind) -> None:
        self.world.scheduler.after(self._about_us(kind[0] * self.slower), self._strike, kind)

    def _strike(self, kind: Kind) -> None:
        if self.active:
            self._again(kind)
            kind[1]()

    def hurry(self, elections: bool, changes: bool) -> None:
        """Enough messages, but too few elections or changes: cause some."""
        if elections and self.random.random() < 0.1:
            self._crash_leader()
        if changes and self.random.random() < 0.2:
            self.command(only=(Swap, Expand, Contract))

    def calm(self) -> None:
        """Too much goes wrong for anything to get done: everything becomes rarer."""
        self.slower *= 3
        self.world.ambush.chance /= 3

    def _crash_leader(self) -> None:
        record = self.world.store.record
        if record is not None and record.leader is not None:
            self._tell(f"crash {record.leader.node}, which leads")
            self.world.nodes[record.leader.node].crash()

    def _about_us(self, mean_ms: int) -> int:
        return 1 + int(self.random.expovariate(1.0) * mean_ms * 1000)

    def _tell(self, text: str) -> None:
        self.world.statistics.faults += 1
        for watch in self.world.fault_watchers:
            watch(self.world, text)

    def _some_node(self) -> Node | None:
        """A node that is up; often the leader, where it hurts most."""
        world = self.world
        record = world.store.record
        if record is not None and record.leader is not None and self.random.random() < 0.3:
            leader = world.nodes[record.leader.node]
            return leader if leader.up else None
        up = [node for node in world.nodes.values() if node.up]
        return self.random.choice(up) if up else None

    # --- network ---------------------------------------------------------------------------------

    def cut(self) -> None:
        """A split, an end cut off, or one direction lost."""
        names = list(self.world.network.ends)
        random = self.random
        shape = random.choice(("split", "split", "alone", "one way", "mute", "deaf", "thin"))
        one = random.choice(self.world.node_names + self.world.operator_names)
        rest = [name for name in names if name != one]
        if shape == "split":
            left = [name for name in names if random.random() < 0.5]
            right = [name for name in names if name not in left]
            links = [(a, b) for a in left for b in right] + [(b, a) for a in left for b in right]
        elif shape == "alone":
            links = [(one, name) for name in rest] + [(name, one) for name in rest]
        elif shape == "one way":
            links = [(one, random.choice(rest))]
        elif shape in ("mute", "thin"):
            links = [(one, name) for name in rest]
        else:
            links = [(name, one) for name in rest]
        self._tell(f"cut {shape} {one if shape != 'split' else ','.join(left)}")
        network = self.world.network
        thin = shape == "thin"
        (network.make_thin if thin else network.cut)(links)
        length_us = self._about_us(self.world.options.cut_ms)
        self.world.scheduler.after(length_us, network.widen if thin else network.mend, links)

    def clog(self) -> None:
        """One direction holds messages back for a while."""
        ends = list(self.world.network.ends)
        src, dst = self.random.choice(self.world.node_names), self.random.choice(ends)
        if self.random.random() < 0.5:
            src, dst = dst, src
        if src == dst:
            return
        self._tell(f"clog {src}>{dst}")
        self.world.network.clog(src, dst)
        length_us = self._about_us(self.world.options.clog_ms)
        self.world.scheduler.after(length_us, self._unclog, (src, dst))

    def _unclog(self, link: tuple[str, str]) -> None:
        self.world.network.unclog(*link, in_order=self.random.random() < 0.5)

    # --- processes -------------------------------------------------------------------------------

    def crash(self) -> None:
        """One node now, one node inside its next step, or all nodes at once."""
        random = self.random
        shape = random.random()
        if shape < 0.08:
            self._tell("power cut")
            for each in self.world.nodes.values():
                each.crash()
            return
        node = self._some_node()
        if node is None:
            return
        if shape < 0.4:
            node.doom = random.randint(0, 4)
            self._tell(f"doom {node.name} after {node.doom}")
        else:
            self._tell(f"crash {node.name}")
            node.crash()

    def power_cut(self) -> None:
        """Some machines, or all, lose their power at the same moment."""
        nodes = list(self.world.nodes.values())
        most = len(nodes)
        struck = self.random.sample(nodes, min(most, self.random.choice((1, 1, 2, 2, 3, most))))
        self._tell(f"no power: {' '.join(node.name for node in struck)}")
        for node in struck:
            node.crash(power=True)

    def node_went_down(self, node: Node) -> None:
        """Whatever brought it down, it comes back."""
        if self.active:
            length_us = self._about_us(self.world.options.down_ms)
            self.world.scheduler.after(length_us, node.restart, None)

    def drain(self) -> None:
        """A node is asked to stop: it says so, and waits until it leads nothing, but not for ever.

        It may die meanwhile by another fault; then that was all.
        """
        node = self._some_node()
        if node is None or node.replica.draining:
            return
        self._tell(f"drain {node.name}")
        self.world.statistics.drains += 1
        node.replica.draining = True
        give_up_us = self.world.scheduler.now_us + self.world.options.drain_ms * 1000
        leads = self.world.is_leader(node.name)
        self._stop_drained((node, node.generation, give_up_us, leads))

    def _stop_drained(self, drained: tuple[Node, int, int, bool]) -> None:
        node, generation, give_up_us, led = drained
        if not self.active or node.generation != generation:
            return
        leads = self.world.is_leader(node.name)
        if leads and self.world.scheduler.now_us < give_up_us:
            self.world.scheduler.after(DRAIN_CHECK_US, self._stop_drained, drained)
            return
        self.world.statistics.handed_over += led and not leads
        self._tell(f"{node.name} stops")
        node.crash()

    def pause(self) -> None:
        """A process stands still for a while, and then finds all that came meanwhile."""
        random = self.random
        process: Node | Operator | None = self._some_node()
        if random.random() < 0.3:
            up = [operator for operator in self.world.operators.values() if operator.up]
            process = random.choice(up) if up else None
        if process is not None and not process.paused:
            self._tell(f"pause {process.name}")
            process.pause()
            length_us = self._about_us(self.world.options.pause_ms)
            self.world.scheduler.after(length_us, process.resume, None)

    def set_clock(self) -> None:
        """A clock jumps, forwards or back, by little or by much."""
        random = self.random
        names = [*self.world.node_names, *self.world.operator_names]
        name = random.choice(names)
        process = self.world.nodes.get(name) or self.world.operators[name]
        step_ms = int(random.expovariate(1.0) * random.choice((20, 500, 20_000)))
        step_ms = step_ms if random.random() < 0.5 else -step_ms
        process.skew_ms = max(process.skew_ms + step_ms, CLOCK_MS_MIN)
        self.world.statistics.clock_steps += 1
        self._tell(f"clock of {process.name} set by {step_ms} ms")

    def coordinator_crash(self) -> None:
        up = [operator for operator in self.world.operators.values() if operator.up]
        if not up:
            return
        operator = self.random.choice(up)
        if self.random.random() < 0.7:
            operator.doom = self.random.randint(0, 5)
            self._tell(f"doom {operator.name} after {operator.doom}")
        else:
            self._tell(f"crash {operator.name}")
            operator.crash()

    def operator_went_down(self, operator: Operator) -> None:
        if self.active:
            length_us = self._about_us(self.world.options.coordinator_down_ms)
            self.world.scheduler.after(length_us, operator.restart, None)

    # --- disks -----------------------------------------------------------------------------------

    def _may_harm_disks(self) -> bool:
        """Only where the record tells where the good copies are."""
        world = self.world
        record = world.store.record
        return not world.restores.count or (
            record is not None and not world.restores.contradicted(record)
        )

    def wipe(self) -> None:
        node = self.random.choice(list(self.world.nodes.values()))
        if not self._may_harm_disks():
            return
        if node.disk.superblock is None or not self.world.atlas.may_wipe(node):
            return
        self._tell(f"wipe {node.name}")
        self.world.statistics.lost_disks += 1
        node.crash()
        node.wipe()

    def take_away(self) -> None:
        """A node runs without its volume for a while, and answers that it has no replica."""
        node = self._some_node()
        if node is None or node.away or node.disk.superblock is None:
            return
        self._tell(f"volume of {node.name} away")
        node.away = True
        node.crash()
        self.world.scheduler.after(self._about_us(AWAY_MS), self._bring_back, node)

    def _bring_back(self, node: Node) -> None:
        if node.away:
            node.away = False
            node.crash()

    def _some_slot(self) -> tuple[Node, int] | None:
        """A durable entry on some disk, often a recent one."""
        node = self.random.choice(list(self.world.nodes.values()))
        bases = sorted(node.disk.stable)
        if not bases:
            return None
        recent = self.random.random() < 0.5
        return node, self.random.choice(bases[-8:] if recent else bases)

    def rot(self) -> None:
        """Damage a body, or a header copy, or both."""
        found = self._some_slot()
        if found is None or not self._may_harm_disks():
            return
        node, base = found
        slot = node.disk.stable[base]
        shape = self.random.choice(("body", "body", "header", "both"))
        # With both copies gone nobody can tell how far the damage reaches.
        known = shape == "body" and slot.header is Part.OK
        end = slot.entry.header.end if known else OPEN_END
        if slot.header is Part.ABSENT or not self.world.atlas.may_hurt(node, base, end):
            return
        self._tell(f"rot {shape} {node.name} {base}")
        self.world.statistics.disk_faults += 1
        if shape != "header":
            node.disk.rot_body(base)
        if shape != "body":
            node.disk.rot_header(base)

    def misdirect(self) -> None:
        """The next entry written lands on an older one."""
        found = self._some_slot()
        if found is None or not self._may_harm_disks():
            return
        node, base = found
        atlas = self.world.atlas
        slot = node.disk.stable[base]
        end = slot.entry.header.end if slot.header is Part.OK else OPEN_END
        # The entry that will be lost is the next one; nobody else may be hurt from there on.
        tail = node.replica.log.end
        if not node.up or node.disk.misdirecting is not None:
            return
        if atlas.may_hurt(node, base, end) and atlas.may_hurt(node, tail, OPEN_END):
            self._tell(f"misdirect {node.name} onto {base}")
            self.world.statistics.disk_faults += 1
            node.disk.misdirect_next_write(base)

    def io_error(self) -> None:
        node = self._some_node()
        if node is not None:
            self._tell(f"io error {node.name}")
            self.world.statistics.disk_faults += 1
            node.disk.fail_next()

    # --- commands --------------------------------------------------------------------------------

    def command(self, only: tuple[type[Command], ...] = ()) -> None:
        """Ask some coordinator for something, of these types if any are named; it may refuse."""
        up = [operator for operator in self.world.operators.values() if operator.up]
        command = self._some_command()
        for _ in range(4):
            if only and not isinstance(command, only):
                command = self._some_command()
        if not up or command is None or (only and not isinstance(command, only)):
            return
        if isinstance(command, Swap | Expand | Contract):
            if self.world.atlas.pending or not self.world.atlas.may_change(command):
                return
            self.world.atlas.pending.append(command)
        self.number += 1
        operator = self.random.choice(up)
        self._tell(f"command {operator.name} {command}")
        operator.command(self.number, command)

    def _some_command(self) -> Command | None:
        world = self.world
        record = world.store.record
        if record is None or not record.ensemble:
            return None
        random = self.random
        members = [member.node for member in record.ensemble]
        spares = [name for name in world.node_names if name not in members]
        kinds = ["promote", "trim", "swap", "swap"]
        kinds += ["expand"] * (len(members) <= world.options.members)
        kinds += ["expand"] * 4 * (len(members) < world.options.members)
        kinds += ["contract"] * (1 < len(members) >= world.options.members)
        kinds += ["abort"] * 2 if record.change or record.joining else []
        kind = random.choice(kinds)
        if kind == "promote":
            return Promote(random.choice(members))
        if kind == "trim":
            return TrimShard(random.randint(0, max(world.atlas.commit, 1)))
        if kind == "abort":
            return AbortChange()
        if kind == "contract":
            leader = record.leader.node if record.leader else ""
            others = [name for name in members if name != leader]
            return Contract(random.choice(others if random.random() < 0.8 else members))
        if not spares or (kind == "expand" and len(members) >= MEMBERS_MAX):
            return None
        if kind == "expand":
            return Expand(random.choice(spares))
        down = [name for name in members if not world.nodes[name].up]
        replaced = down if down and random.random() < 0.6 else members
        return Swap(random.choice(replaced), random.choice(spares))
