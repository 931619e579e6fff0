"""One small world: its states, and everything that can happen next.

A state is a tuple of integers.  First a cell for each node and each coordinator, that is its
machine, its disk and what is in flight to it (`explore_cells`); then

    metadata | canonical chain | leaders by epoch | writes, crashes and elections left |
    commands given

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
from shardlog.protocol.effects import Received
from shardlog.protocol.failures import StaleEpoch
from shardlog.protocol.history import last_epoch
from shardlog.protocol.messages import Appended, Envelope, FenceAnswer, Refused
from shardlog.protocol.shard import Shard, Status
from shardlog.sim.explore_cells import COORDINATES, Action, Cells, Move, Outbox, Post
from shardlog.sim.explore_coordinators import Learn, Suspect
from shardlog.sim.explore_known import Drive, Known
from shardlog.sim.explore_messages import Mood, Reduction
from shardlog.sim.explore_replicas import SHARD
from shardlog.sim.explore_symmetry import Symmetry

State = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a world is.  Of `interchangeable` names, each group may be exchanged at will.

    `epochs` are those that elections open, with the one in which the world begins; what a change
    raises the epoch by does not count, so that an election may come before it, within it and after.
    """

    nodes: tuple[str, ...]
    coordinators: tuple[str, ...] = ("x",)
    epochs: int = 3
    writes: int = 2
    crashes: int = 1
    commands: tuple[Command, ...] = ()
    polls: bool = False
    reduction: Reduction = Reduction.ALL
    interchangeable: tuple[tuple[str, ...], ...] = ()
    slow: tuple[str, ...] = ()


class Duty(NamedTuple):
    """What a coordinator may do."""

    action: Action
    own: int
    store: int
    sent: Outbox
    given: int
    elects: int
    bare: bool
    """Neither the coordinator nor the metadata is another one."""


class World:
    """See the module."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.nodes = nodes = len(bounds.nodes)
        self.at_store = nodes + len(bounds.coordinators)
        self.at_chain = self.at_store + 1
        self.at_leaders = self.at_store + 2
        self.at_writes = self.at_store + 3
        self.at_crashes = self.at_store + 4
        self.at_elections = self.at_store + 5
        self.at_commands = self.at_store + 6
        names = (*bounds.nodes, *bounds.coordinators)
        ends = {name: at for at, name in enumerate(names)}
        self.known = known = Known(ends, nodes, bounds.reduction)
        self.cells = Cells(known)
        groups = bounds.interchangeable if Reduction.SYMMETRY in bounds.reduction else ()
        self.symmetry = Symmetry(self.cells, bounds.nodes, names, groups)
        self._posts: dict[tuple[int, int, bool], Post] = {}
        self._every_post: dict[Mood, Post] = {}
        self._duties: dict[tuple[int, ...], list[Duty]] = {}
        self._hasty: dict[tuple[int, int], Duty | None] = {}
        self._found: list[State] = []
        self._actions: list[Action] = []
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
        post = self._post(state)
        left = state[self.at_writes]
        for at in range(self.nodes):
            for move in post.moves(state[at], left):
                self._take(state, at, move, post)
        if Reduction.REFUSALS not in self.bounds.reduction:
            self._refuse(state, post)
        for at in range(self.nodes, self.at_store):
            for duty in self._duties_of(state, at):
                self._drive(state, at, duty, post)
        return found

    def actions(self, state: State) -> list[tuple[Action, State]]:
        """The same, each with what was done."""
        self.successors(state)
        return list(zip(self._actions, self._found, strict=True))

    def machine(self, state: State, at: int) -> int:
        """The number of the machine at one end."""
        return self.cells.values[state[at]].machine

    # --- nodes -----------------------------------------------------------------------------------

    def _take(self, state: State, at: int, move: Move, post: Post) -> None:
        self.cells.doing = move.action
        core = list(state)
        core[at] = move.own
        touched = [at]
        core[self.at_writes] -= move.spent
        chain = state[self.at_chain]
        if move.voiced or move.replies or self.known.judged.get((chain, move.witness), -1) != chain:
            self._judge(core, move.witness, move.replies)
        if move.action.crashed:
            core[self.at_crashes] -= 1
            post = self._change_mood(core, touched, post)
        self._send(state, core, touched, move.sent, post, move.bare)

    def _judge(self, core: list[int], replica: int, replies: tuple[Appended, ...]) -> None:
        """Check what a replica has become, against all that was ever committed."""
        known, values = self.known, self.cells.values
        before = core[self.at_chain]
        core[self.at_chain] = chain = known.judge(before, replica)
        if chain != before:
            for at in range(self.nodes):
                known.judge(chain, values[core[at]].machine)
        leaders = core[self.at_leaders]
        if known.faces[replica].leads:
            leaders = known.lead(leaders, replica)
        faces = known.faces
        passed = min([faces[values[each].machine].epoch for each in core[: self.nodes]])
        core[self.at_leaders] = known.forget(leaders, passed)
        if replies:
            known.reply(chain, replies)

    def _refuse(self, state: State, post: Post) -> None:
        """A follower that has gone on refuses what its old leader sends (N8)."""
        known = self.known
        faces = [known.faces[self.machine(state, at)] for at in range(self.nodes)]
        for at, leader in enumerate(faces):
            for rival in faces:
                if rival.epoch > leader.epoch and rival.member in leader.cursors:
                    refusal = Refused("Entries", rival.epoch, StaleEpoch(rival.epoch))
                    told = Envelope(SHARD, *rival.member, *leader.member, refusal)
                    for move in post.taken(state[at], known.input(Received(told))):
                        self._take(state, at, move, post)
                    break

    # --- coordinators ----------------------------------------------------------------------------

    def _drive(self, state: State, at: int, duty: Duty, post: Post) -> None:
        self.cells.doing = duty.action
        core = list(state)
        core[at], core[self.at_store] = duty.own, duty.store
        core[self.at_commands] |= duty.given
        core[self.at_elections] -= duty.elects
        core[self.at_crashes] -= duty.action.crashed
        touched = [at]
        post = self._change_mood(core, touched, post)
        self._send(state, core, touched, duty.sent, post, duty.bare)

    def _duties_of(self, state: State, at: int) -> list[Duty]:
        """All that a coordinator may do."""
        store, cell = state[self.at_store], state[at]
        given, elections = state[self.at_commands], state[self.at_elections]
        leader = self._looked_after(state, at)
        key = (cell, store, given, elections, state[self.at_crashes], leader)
        found = self._duties.get(key)
        if found is None:
            found = self._duties[key] = []
            for message in self.cells.values[cell].mail:
                if not self._is_gathered(cell, message):
                    found += self._driven(state, at, message, message)
            found += self._gathered(state, at)
            for event, gives in self._unasked(state, at, leader):
                found += self._driven(state, at, event, gives=gives)
            if state[self.at_crashes]:
                found += self._crash(state, at)
        return found

    def _driven(
        self, state: State, at: int, event: int, message: int = -1, gives: int = 0
    ) -> list[Duty]:
        """One event at one coordinator, in each way it can go, and each crash within it."""
        known, store = self.known, state[self.at_store]
        machine, _, mail = self.cells.values[state[at]]
        left = self.cells.without(mail, message)
        self.cells.doing = Action(at, event, False)
        drives = known.drive(machine, store, event)
        found = [self._duty(state, at, event, each, left, gives) for each in drives]
        if drives and state[self.at_crashes]:
            self.cells.doing = Action(at, event, True)
            found += [
                self._duty(state, at, event, each, left, gives, crashed=True)
                for each in known.die(machine, store, event)
            ]
        return [each for each in found if each.elects <= state[self.at_elections]]

    def _is_gathered(self, cell: int, message: int) -> bool:
        """Whether all that this would do is to bring an election closer to its quorum.

        Nothing but the choice reads the answers, so they may as well all be heard right before it;
        until then they are in flight, and any others may be heard in their place.
        """
        if Reduction.QUORUMS not in self.bounds.reduction:
            return False
        c = self.known.coordinators.values[self.cells.values[cell].machine]
        answer = self.known.flights[message].envelope.message
        return (
            isinstance(answer, FenceAnswer)
            and c.election is not None
            and c.election.asked is None
            and last_epoch(answer.history) < c.election.epoch
        )

    def _gathered(self, state: State, at: int) -> list[Duty]:
        """Every set of fence answers of which the last one makes the coordinator choose."""
        known, store = self.known, state[self.at_store]
        machine, _, mail = self.cells.values[state[at]]
        answers = [each for each in mail if self._is_gathered(state[at], each)]
        found: list[Duty] = []
        waiting = [(machine, 0, mail)]
        while waiting:
            heard, first, left = waiting.pop()
            for number, answer in enumerate(answers):
                if answer not in left:
                    continue
                rest = tuple([each for each in left if each != answer])
                self.cells.doing = Action(at, answer, False)
                drives = known.drive(heard, store, answer)
                after = [known.coordinators.values[each.after].election for each in drives]
                if any(each is None or each.asked for each in after):
                    found += [self._duty(state, at, answer, each, rest, 0) for each in drives]
                elif drives and number >= first:
                    waiting.append((drives[0].after, number + 1, rest))
        return found

    def _duty(
        self,
        state: State,
        at: int,
        event: int,
        drive: Drive,
        mail: tuple[int, ...],
        gives: int,
        crashed: bool = False,
    ) -> Duty:
        store = state[self.at_store]
        own = self._post(state).fit(drive.after, COORDINATES, mail)
        bare = drive.after == self.machine(state, at) and drive.store == store
        elects = self._elects(store, drive.store)
        sent = self.cells.sent(drive.sent)
        return Duty(Action(at, event, crashed), own, drive.store, sent, gives, elects, bare)

    def _elects(self, before: int, after: int) -> int:
        """1 if an election was begun, also where one is started over (T13)."""
        if before == after:
            return 0
        old, new = (self.known.stores.values[each].record for each in (before, after))
        assert old is not None and new is not None
        return int(new.status is Status.ELECTION and new.epoch > old.epoch)

    def _crash(self, state: State, at: int) -> list[Duty]:
        known, store = self.known, state[self.at_store]
        machine, _, mail = self.cells.values[state[at]]
        after = known.begin(self.bounds.coordinators[at - self.nodes], store)
        if after == machine:
            return []
        return [self._duty(state, at, -1, Drive(after, store, ()), mail, 0, crashed=True)]

    def _unasked(self, state: State, at: int, leader: int) -> list[tuple[int, int]]:
        """What happens at a coordinator without a message: events, and the commands they give."""
        known, store, given = self.known, state[self.at_store], state[self.at_commands]
        version, record = known.records[self.machine(state, at)]
        if version < known.stores.values[store].version:
            return [(self._learn, 0)]
        if record is None:
            return []
        events: list[tuple[int, int]] = []
        if state[self.at_elections]:
            events.append((self._suspect, 0))
        if record.status is Status.STEADY:
            events += [
                (event, 1 << number)
                for number, event in enumerate(self._commands)
                if not given >> number & 1 and self._worth_giving(number, record)
            ]
        elif not known.alone:
            events.append((self.cells.tick, 0))
        if leader >= 0:
            name = self.bounds.coordinators[at - self.nodes]
            events.append((known.poll(name, leader, record.epoch), 0))
        return events

    def _looked_after(self, state: State, at: int) -> int:
        """The replica that a coordinator looks at; -1 for none."""
        if not self.bounds.polls:
            return -1
        known = self.known
        version, record = known.records[self.machine(state, at)]
        current = version == known.stores.values[state[self.at_store]].version
        if record is None or not current or record.status is not Status.STEADY:
            return -1
        assert record.leader is not None
        replica = self.machine(state, known.ends[record.leader.node])
        face = known.faces[replica]
        worth = face.member == record.leader and self._worth_a_look(record, face.epoch)
        return replica if worth else -1

    def _worth_giving(self, number: int, record: Shard) -> bool:
        """To cancel what has not been prepared only means that nothing is changed."""
        reduced = Reduction.LEFTOVERS in self.bounds.reduction
        aborts = isinstance(self.bounds.commands[number], AbortChange)
        return not (reduced and aborts and record.change is None)

    def _worth_a_look(self, record: Shard, epoch: int) -> bool:
        """Once a change is over, all that a look leads to is that leftovers are cleared away."""
        if Reduction.LEFTOVERS not in self.bounds.reduction or record.change is not None:
            return True
        joining = record.joining is not None and not record.joining.cancelled
        return joining or epoch < record.epoch

    # --- messages --------------------------------------------------------------------------------

    def _send(
        self,
        state: State,
        core: list[int],
        touched: list[int],
        sent: Outbox,
        post: Post,
        bare: bool,
    ) -> None:
        """Put the next state together: what is in flight besides, and what is urgent."""
        nodes = self.nodes
        for end, group in sent:
            core[end] = post.delivered(core[end], group)
            touched.append(end)
        hasty = post.hasty
        while touched:
            at = touched[-1]
            if at >= nodes:
                duty = self._urgent_duty(core, at, post)
                if duty is None:
                    touched.pop()
                    continue
                core[at], core[self.at_store], sent = duty.own, duty.store, duty.sent
                post = self._change_mood(core, touched, post)
                hasty = post.hasty
            else:
                cell = core[at]
                move = hasty[cell] if cell in hasty else post.urgent(cell)
                if move is None:
                    touched.pop()
                    continue
                core[at], sent = move.own, move.sent
                self._judge(core, move.witness, move.replies)
            for end, group in sent:
                core[end] = post.delivered(core[end], group)
                touched.append(end)
        if bare and self._is_idle(state, core):
            return
        self._found.append(tuple(core))
        self._actions.append(self.cells.doing)

    def _is_idle(self, state: State, core: list[int]) -> bool:
        """At most a message is gone: whatever follows could follow with it in flight."""
        within = self.cells.within
        return core[self.at_store :] == list(state[self.at_store :]) and all(
            core[at] == state[at] or within(core[at], state[at]) for at in range(self.at_store)
        )

    def _urgent_duty(self, core: list[int], at: int, post: Post) -> Duty | None:
        key = (core[at], core[self.at_store])
        try:
            return self._hasty[key]
        except KeyError:
            found = None
            message = post.urgent_mail(core[at])
            if message >= 0:
                machine, _, mail = self.cells.values[core[at]]
                left = tuple([each for each in mail if each != message])
                drives = self.known.drive(machine, key[1], message)
                assert len(drives) <= 1, "a choice is never urgent"
                drive = drives[0] if drives else Drive(machine, key[1], ())
                found = self._duty(tuple(core), at, message, drive, left, 0)
                assert not found.elects, "an election is never urgent"
            self._hasty[key] = found
            return found

    # --- moods -----------------------------------------------------------------------------------

    def _change_mood(self, core: list[int], touched: list[int], before: Post) -> Post:
        post = self._post(core)
        if post is not before:
            core[: self.at_store] = [post.settled(each) for each in core[: self.at_store]]
            touched += range(self.at_store)
        return post

    def _post(self, core: Sequence[int]) -> Post:
        key = (core[self.at_store], core[self.at_commands], core[self.at_crashes] == 0)
        found = self._posts.get(key)
        if found is None:
            mood = self._mood(*key)
            found = self._every_post.setdefault(mood, Post(self.cells, mood))
            self._posts[key] = found
        return found

    def _mood(self, store: int, given: int, unshaken: bool) -> Mood:
        record = self.known.stores.values[store].record
        assert record is not None
        joining = record.joining is not None and not record.joining.cancelled
        over = record.change is None and not joining and self._spent(given)
        return Mood(frozenset() if over else frozenset(self.bounds.slow), unshaken)

    def _spent(self, given: int) -> bool:
        """Whether every command that begins a change has been given."""
        return all(
            given >> number & 1 or isinstance(command, AbortChange)
            for number, command in enumerate(self.bounds.commands)
        )
