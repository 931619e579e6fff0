"""One small world: its states, and everything that can happen next.

A state is a tuple of integers, each the number of a value that `explore_known` has met:

    replicas | their disks | coordinators | metadata | canonical chain | leaders by epoch |
    writes left, crashes left, commands given | messages in flight, in order

A disk counts only as long as a crash may still come.  The chain of everything ever committed and
the leaders of all epochs are history, kept so that every invariant can be judged by one state and
one step.  Acknowledged writes need no record of their own: an acknowledgement is checked against
the chain when it is given, and the chain against every later leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardlog.protocol.coordination import AbortChange, Command, Commanded
from shardlog.protocol.effects import Received, Tick
from shardlog.protocol.failures import StaleEpoch
from shardlog.protocol.messages import Append, Appended, Envelope, Refused
from shardlog.protocol.shard import Shard, Status
from shardlog.sim.explore_coordinators import Learn, Suspect
from shardlog.sim.explore_known import CLIENT, Face, Known
from shardlog.sim.explore_messages import Fate, Mood, Reduction
from shardlog.sim.explore_replicas import SHARD
from shardlog.sim.explore_symmetry import Symmetry

State = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a world is.  Of `interchangeable` names, each group may be exchanged at will."""

    nodes: tuple[str, ...]
    coordinators: tuple[str, ...] = ("x",)
    epochs: int = 3
    writes: int = 2
    crashes: int = 1
    commands: tuple[Command, ...] = ()
    polls: bool = False
    reduction: Reduction = Reduction.ELECTIONS
    interchangeable: tuple[tuple[str, ...], ...] = ()
    slow: tuple[str, ...] = ()


class Action(NamedTuple):
    """Who did what: the number of an event, or -1 for a crash."""

    at: int
    event: int
    crashed: bool


class World:
    """See the module.  `doing` is the action under way, for whoever catches what it raises."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.nodes = nodes = len(bounds.nodes)
        self.first_coordinator = 2 * nodes
        self.at_store = 2 * nodes + len(bounds.coordinators)
        self.at_chain = self.at_store + 1
        self.at_leaders = self.at_store + 2
        self.at_writes = self.at_store + 3
        self.at_crashes = self.at_store + 4
        self.at_commands = self.at_store + 5
        self.width = self.at_store + 6
        ends = {name: at for at, name in enumerate(bounds.nodes)}
        ends |= {name: 2 * nodes + at for at, name in enumerate(bounds.coordinators)}
        self.known = known = Known(ends, nodes, bounds.reduction)
        self.symmetry = Symmetry(known, bounds.nodes, bounds.coordinators, bounds.interchangeable)
        self.sessions: tuple[int, ...] = ()
        self.doing = Action(0, -1, False)
        self.newcomer = ""
        self._moods: dict[tuple[int, int, bool], Mood] = {}
        self._every_mood: dict[Mood, Mood] = {}
        self._polling = False
        self._found: list[State] = []
        self._actions: list[Action] = []
        self._tick = known.input(Tick())
        self._suspect = known.input(Suspect())
        self._learn = known.input(Learn())
        self._commands = [
            known.input(Commanded(number, command))
            for number, command in enumerate(bounds.commands)
        ]

    def successors(self, state: State) -> list[State]:
        """Every state that one action leads to, not yet reduced by symmetry."""
        found: list[State] = []
        self._found = found
        self._actions = []
        flights = self.known.flights
        for message in state[self.width :]:
            end = flights[message].end
            if end < self.nodes:
                self._step(state, end, message, message)
            else:
                self._drive(state, end, message, message)
        for at in range(self.nodes):
            self._unasked(state, at)
        for at in range(self.first_coordinator, self.at_store):
            self._unasked_coordinator(state, at)
        return found

    def actions(self, state: State) -> list[tuple[Action, State]]:
        """The same, each with what was done."""
        self.successors(state)
        return list(zip(self._actions, self._found, strict=True))

    # --- replicas --------------------------------------------------------------------------------

    def _step(self, state: State, at: int, event: int, message: int = -1, spent: int = 0) -> None:
        """One event at one replica and, if a crash may still come, each crash within it."""
        known = self.known
        self.doing = Action(at, event, False)
        step = known.step(state[at], event)
        if step is None:
            return
        core = list(state[: self.width])
        core[at] = step.after
        core[self.at_writes] -= spent
        crashes = state[self.at_crashes]
        disk = self.nodes + at
        if crashes:
            core[disk] = known.write(state[disk], step.disk)
        self._judge(core, step.after, step.replies)
        self._arrive(state, core, at, message, step.sent)
        if not crashes:
            return
        for crash in known.crashes(state[at], state[disk], event):
            self.doing = Action(at, event, True)
            core = list(state[: self.width])
            core[at], core[disk] = crash.after, crash.image
            core[self.at_writes] -= spent
            self._judge(core, crash.witness, crash.replies)
            self._count_crash(core)
            self._arrive(state, core, at, message, crash.sent)

    def _judge(self, core: list[int], replica: int, replies: tuple[Appended, ...]) -> None:
        """Check what a replica has become, against all that was ever committed."""
        known = self.known
        before = core[self.at_chain]
        core[self.at_chain] = chain = known.judge(before, replica)
        if chain != before:
            for at in range(self.nodes):
                known.judge(chain, core[at])
        if known.faces[replica].leads:
            core[self.at_leaders] = known.lead(core[self.at_leaders], replica)
        passed = min([known.faces[each].epoch for each in core[: self.nodes]])
        core[self.at_leaders] = known.forget(core[self.at_leaders], passed)
        if replies:
            known.reply(chain, replies)

    def _count_crash(self, core: list[int]) -> None:
        core[self.at_crashes] -= 1
        if not core[self.at_crashes]:
            core[self.nodes : 2 * self.nodes] = [0] * self.nodes

    def _unasked(self, state: State, at: int) -> None:
        """What happens at a node without a message."""
        known, nodes = self.known, self.nodes
        face = known.faces[state[at]]
        left = state[self.at_writes]
        if face.serving and left:
            self._step(state, at, self._append(face, self.bounds.writes - left), spent=1)
        if face.leads and not face.serving:
            self._step(state, at, self._tick)
        if face.leads and self.bounds.reduction is Reduction.NONE:
            for rival in (known.faces[each] for each in state[:nodes]):
                if rival.epoch > face.epoch and rival.member in face.cursors:
                    self._step(state, at, self._refusal(rival, face))
                    break
        if state[self.at_crashes]:
            self.doing = Action(at, -1, True)
            core = list(state[: self.width])
            core[at], core[nodes + at] = known.restart(state[at], state[nodes + at])
            if core[at] != state[at]:
                self._count_crash(core)
                self._judge(core, core[at], ())
                self._arrive(state, core, at, -1, ())

    def _append(self, face: Face, number: int) -> int:
        """A client appends at a leader that serves; each write has a session of its own."""
        message = Append(self.sessions[number], 1, 1, b"", 0)
        return self.known.input(
            Received(Envelope(SHARD, CLIENT, 0, face.member.node, face.member.incarnation, message))
        )

    def _refusal(self, rival: Face, leader: Face) -> int:
        """A follower that has gone on refuses what its old leader sends (N8)."""
        message = Refused("Entries", rival.epoch, StaleEpoch(rival.epoch))
        return self.known.input(Received(Envelope(SHARD, *rival.member, *leader.member, message)))

    # --- coordinators ----------------------------------------------------------------------------

    def _drive(self, state: State, at: int, event: int, message: int = -1, given: int = 0) -> None:
        """One event at one coordinator, in each way it can go, and each crash within it."""
        known, store = self.known, state[self.at_store]
        self.doing = Action(at, event, False)
        drives = known.drive(state[at], store, event)
        for drive in drives:
            if drive.store != store and self._elects_too_far(drive.store):
                continue
            core = list(state[: self.width])
            core[at], core[self.at_store] = drive.after, drive.store
            core[self.at_commands] |= given
            self._arrive(state, core, at, message, drive.sent)
        if not drives or not state[self.at_crashes]:
            return
        for drive in known.die(state[at], store, event):
            self.doing = Action(at, event, True)
            core = list(state[: self.width])
            core[at], core[self.at_store] = drive.after, drive.store
            core[self.at_commands] |= given
            self._count_crash(core)
            self._arrive(state, core, at, message, drive.sent)

    def _elects_too_far(self, store: int) -> bool:
        """Also where an election is started over because the leader cannot serve (T13)."""
        record = self.known.stores.values[store].record
        assert record is not None
        return record.status is Status.ELECTION and record.epoch > self.bounds.epochs

    def _unasked_coordinator(self, state: State, at: int) -> None:
        """What happens at a coordinator without a message."""
        known, store = self.known, state[self.at_store]
        version, record = known.records[state[at]]
        if version < known.stores.values[store].version:
            self._drive(state, at, self._learn)
        elif record is not None:
            if record.epoch < self.bounds.epochs:
                self._drive(state, at, self._suspect)
            if record.status is Status.STEADY:
                self._look_after(state, at, record)
            elif not known.alone:
                self._drive(state, at, self._tick)
        if state[self.at_crashes]:
            self.doing = Action(at, -1, True)
            name = self.bounds.coordinators[at - self.first_coordinator]
            after = known.begin(name, store)
            if after != state[at]:
                core = list(state[: self.width])
                core[at] = after
                self._count_crash(core)
                self._arrive(state, core, at, -1, ())

    def _look_after(self, state: State, at: int, record: Shard) -> None:
        """Commands, each given once, and a look at the leader."""
        given = state[self.at_commands]
        for number, event in enumerate(self._commands):
            if not given >> number & 1 and self._worth_giving(number, record):
                self._drive(state, at, event, given=1 << number)
        leader = record.leader
        if not self.bounds.polls or leader is None:
            return
        replica = state[self.known.ends[leader.node]]
        face = self.known.faces[replica]
        if face.member == leader and self._worth_a_look(record, face):
            name = self.bounds.coordinators[at - self.first_coordinator]
            self._polling = record.joining is not None
            self._drive(state, at, self.known.poll(name, replica, record.epoch))
            self._polling = False

    def _worth_giving(self, number: int, record: Shard) -> bool:
        """To cancel what has not been prepared only means that nothing is changed."""
        reduced = self.bounds.reduction is not Reduction.NONE
        aborts = isinstance(self.bounds.commands[number], AbortChange)
        return not (reduced and aborts and record.change is None)

    def _worth_a_look(self, record: Shard, leader: Face) -> bool:
        """Once a change is over, all that a look leads to is that leftovers are cleared away."""
        if self.bounds.reduction is Reduction.NONE or record.change is not None:
            return True
        joining = record.joining is not None and not record.joining.cancelled
        return joining or leader.epoch < record.epoch

    # --- messages --------------------------------------------------------------------------------

    def _arrive(
        self, state: State, core: list[int], at: int, message: int, sent: tuple[int, ...]
    ) -> None:
        """Put the next state together: what is left in flight, what is new, what is urgent.

        A coordinator that looks after its shard fences a new node to make it a standby again.
        Until it is one it counts for nothing, so all of that happens at once.
        """
        known = self.known
        flights, fate = known.flights, known.fate
        before = state[self.width :]
        left = list(before)
        if message >= 0 and flights[message].once:
            left.remove(message)
        fresh = {each for each in sent if each not in before}
        left += fresh
        if not fresh and core == list(state[: self.width]):
            return  # at most a message is gone: whatever follows could follow with it in flight
        mood = self._mood(core)
        changed = [at] if mood is self._mood(state) else list(range(self.at_store))
        polled = self._polling
        while True:
            waiting: list[int] = []
            urgent = -1
            for each in left:
                end = flights[each].end
                if end in changed or each in fresh:
                    found = fate(each, core[end], mood)
                    if found is Fate.DEAD:
                        continue
                    if found is Fate.URGENT or (
                        polled and each in fresh and flights[each].envelope.dst == self.newcomer
                    ):
                        urgent = each
                waiting.append(each)
            left = waiting
            if urgent < 0:
                break
            left.remove(urgent)
            end = flights[urgent].end
            for each in self._hasten(core, end, urgent):
                if each not in left:
                    left.append(each)
                    fresh.add(each)
            changed.append(end)
            if self._mood(core) is not mood:
                mood = self._mood(core)
                changed = list(range(self.at_store))
        if not fresh.difference(before).intersection(left) and core == list(state[: self.width]):
            return
        left.sort()
        self._found.append((*core, *left))
        self._actions.append(self.doing)

    def _mood(self, core: Sequence[int]) -> Mood:
        key = (core[self.at_store], core[self.at_commands], core[self.at_crashes] == 0)
        found = self._moods.get(key)
        if found is None:
            record = self.known.stores.values[key[0]].record
            assert record is not None
            joining = record.joining is not None and not record.joining.cancelled
            over = record.change is None and not joining and self._spent(key[1])
            slow = frozenset() if over else frozenset(self.bounds.slow)
            found = self._every_mood.setdefault(Mood(slow, key[2]), Mood(slow, key[2]))
            self._moods[key] = found
        return found

    def _spent(self, given: int) -> bool:
        """Whether every command that begins a change has been given."""
        return all(
            given >> number & 1 or isinstance(command, AbortChange)
            for number, command in enumerate(self.bounds.commands)
        )

    def _hasten(self, core: list[int], at: int, message: int) -> tuple[int, ...]:
        """Deliver an urgent message within the same action."""
        known = self.known
        if at < self.nodes:
            step = known.step(core[at], message)
            if step is None:
                return ()
            core[at] = step.after
            disk = self.nodes + at
            if core[disk]:
                core[disk] = known.write(core[disk], step.disk)
            self._judge(core, step.after, step.replies)
            return step.sent
        drives = known.drive(core[at], core[self.at_store], message)
        if not drives:
            return ()
        assert len(drives) == 1, "a choice is never urgent"
        core[at], core[self.at_store] = drives[0].after, drives[0].store
        return drives[0].sent
