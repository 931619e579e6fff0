"""Cells: an end of a world together with all that is in flight to it, numbered as one value.

What a node can do next depends on its machine, its disk and its mail alone, so whole moves are
worked out once for each cell and looked up ever after.  The same holds for what a cell becomes
when mail arrives.  A world state is then a short tuple of numbers, and a transition a few lookups.

Which mail is dead or urgent also depends on a mood of the world (see `explore_messages`), so all of
this is kept apart for each mood, in a `Post`.
"""

from __future__ import annotations

from typing import NamedTuple

from shardlog.protocol.effects import Received, Tick
from shardlog.protocol.messages import Append, Appended, Envelope
from shardlog.sim.explore_known import CLIENT, Face, Known
from shardlog.sim.explore_messages import Fate, Mood
from shardlog.sim.explore_replicas import SHARD
from shardlog.sim.explore_values import Numbers

COORDINATES = -1
"""In place of a disk: this cell is a coordinator's."""


class Cell(NamedTuple):
    """A machine, its disk (0 if no crash can come any more), and its mail, in order."""

    machine: int
    disk: int
    mail: tuple[int, ...]


class Action(NamedTuple):
    """Who did what: the number of an event, or -1 for a crash."""

    at: int
    event: int
    crashed: bool


Outbox = tuple[tuple[int, int], ...]
"""For each receiving end, the number of the group of messages to it."""


class Move(NamedTuple):
    """What a node may do.  `witness` is the replica to be judged: as it died, if it crashed."""

    action: Action
    own: int
    sent: Outbox
    witness: int
    replies: tuple[Appended, ...]
    spent: int
    bare: bool
    """Neither the machine nor its disk is another one."""
    voiced: bool
    """It leads, or its epoch has risen: who leads which epoch has to be looked at."""


class Cells:
    """All cells met so far, and all groups of messages sent at once to one end."""

    def __init__(self, known: Known, sessions: tuple[int, ...] = ()) -> None:
        self.known = known
        self.sessions = sessions
        self.numbers: Numbers[Cell] = Numbers()
        self.values = self.numbers.values
        self.groups: Numbers[tuple[int, ...]] = Numbers()
        self.tick = known.input(Tick())
        # What is being tried, for whoever catches what it raises.
        self.doing = Action(0, -1, False)
        self._within: dict[tuple[int, int], bool] = {}

    def of(self, machine: int, disk: int, mail: tuple[int, ...]) -> int:
        cell = Cell(machine, disk, mail)
        return self.numbers.of(cell, cell)

    def sent(self, messages: tuple[int, ...]) -> Outbox:
        """Messages by the end that they go to."""
        by_end: dict[int, list[int]] = {}
        for each in messages:
            by_end.setdefault(self.known.flights[each].end, []).append(each)
        return tuple(
            (end, self.groups.of(group, group))
            for end, group in ((end, tuple(sorted(each))) for end, each in by_end.items())
        )

    def without(self, mail: tuple[int, ...], message: int) -> tuple[int, ...]:
        """The mail after a delivery: most of it stays in flight."""
        if message < 0 or not self.known.flights[message].once:
            return mail
        return tuple([each for each in mail if each != message])

    def within(self, cell: int, other: int) -> bool:
        """Whether a cell is the other one, at most with less mail."""
        at = (cell, other)
        found = self._within.get(at)
        if found is None:
            this, that = self.values[cell], self.values[other]
            found = this[:2] == that[:2] and set(this.mail) <= set(that.mail)
            self._within[at] = found
        return found


class Post:
    """Cells under one mood: what mail does to them, and what a node may do."""

    def __init__(self, cells: Cells, mood: Mood) -> None:
        self.cells = cells
        self.known = cells.known
        self.mood = mood
        self._settled: dict[int, int] = {}
        self.known_deliveries: dict[tuple[int, int], int] = {}
        # For each cell, what a node does at once.
        self.hasty: dict[int, Move | None] = {}
        self.known_moves: dict[tuple[int, int], list[Move]] = {}

    # --- mail ------------------------------------------------------------------------------------

    def fit(self, machine: int, disk: int, mail: tuple[int, ...]) -> int:
        """The cell with these, without dead mail, nor a disk that no crash can bring back."""
        fate, mood = self.known.fate, self.mood
        alive = [each for each in mail if fate(each, machine, mood) is not Fate.DEAD]
        if mood.unshaken and disk > 0:
            disk = 0
        return self.cells.of(machine, disk, tuple(alive))

    def settled(self, cell: int) -> int:
        """A cell that comes from under another mood."""
        found = self._settled.get(cell)
        if found is None:
            found = self._settled[cell] = self.fit(*self.cells.values[cell])
        return found

    def delivered(self, cell: int, group: int) -> int:
        """The cell when a group of messages is in flight to it besides."""
        at = (cell, group)
        found = self.known_deliveries.get(at)
        if found is None:
            machine, disk, mail = self.cells.values[cell]
            both = {*mail, *self.cells.groups.values[group]}
            found = self.known_deliveries[at] = self.fit(machine, disk, tuple(sorted(both)))
        return found

    def urgent_mail(self, cell: int) -> int:
        """A message that need not wait; -1 if there is none."""
        machine, _, mail = self.cells.values[cell]
        for each in mail:
            if self.known.fate(each, machine, self.mood) is Fate.URGENT:
                return each
        return -1

    # --- nodes -----------------------------------------------------------------------------------

    def urgent(self, cell: int) -> Move | None:
        """What a node does at once, if anything."""
        try:
            return self.hasty[cell]
        except KeyError:
            message = self.urgent_mail(cell)
            found = self._step(cell, message, message, 0, urgent=True) if message >= 0 else None
            self.hasty[cell] = found
            return found

    def moves(self, cell: int, writes_left: int) -> list[Move]:
        """All that a node may do, crashes included."""
        at = (cell, writes_left)
        found = self.known_moves.get(at)
        if found is None:
            machine, disk, mail = self.cells.values[cell]
            face = self.known.faces[machine]
            found = []
            for message in mail:
                found += self.taken(cell, message, message)
            if face.serving and writes_left:
                found += self.taken(cell, self._append(face, writes_left), spent=1)
            if face.leads and not face.serving:
                found += self.taken(cell, self.cells.tick)
            if disk:
                found += self._crash(cell)
            self.known_moves[at] = found
        return found

    def _append(self, face: Face, writes_left: int) -> int:
        """A client appends at a leader that serves; each write has a session of its own."""
        message = Append(self.cells.sessions[-writes_left], 1, 1, b"", 0)
        return self.known.input(
            Received(Envelope(SHARD, CLIENT, 0, face.member.node, face.member.incarnation, message))
        )

    def taken(self, cell: int, event: int, message: int = -1, spent: int = 0) -> list[Move]:
        """One event at a node and, if a crash may still come, each crash within it."""
        move = self._step(cell, event, message, spent)
        if move is None:
            return []
        machine, disk, mail = self.cells.values[cell]
        if not disk:
            return [move]
        found = [move]
        left = self.cells.without(mail, message)
        action = self.cells.doing = Action(self._end(machine), event, True)
        for crash in self.known.crashes(machine, disk, event):
            own = self.fit(crash.after, crash.image, left)
            sent = self.cells.sent(crash.sent)
            found.append(Move(action, own, sent, crash.witness, crash.replies, spent, False, True))
        return found

    def _step(
        self, cell: int, event: int, message: int, spent: int, urgent: bool = False
    ) -> Move | None:
        known = self.known
        machine, disk, mail = self.cells.values[cell]
        left = self.cells.without(mail, message)
        action = self.cells.doing = Action(self._end(machine), event, False)
        step = known.step(machine, event)
        if urgent:
            left = tuple([each for each in left if each != message])
        if step is None:
            if not urgent:
                return None
            own = self.fit(machine, disk, left)
            return Move(action, own, (), machine, (), 0, True, False)
        after = known.write(disk, step.disk) if disk else 0
        own = self.fit(step.after, after, left)
        return Move(
            action,
            own,
            self.cells.sent(step.sent),
            step.after,
            step.replies,
            spent,
            step.after == machine and after == disk,
            self._is_voiced(machine, step.after),
        )

    def _crash(self, cell: int) -> list[Move]:
        """A crash between steps."""
        machine, disk, mail = self.cells.values[cell]
        action = self.cells.doing = Action(self._end(machine), -1, True)
        after, image = self.known.restart(machine, disk)
        if after == machine:
            return []
        return [Move(action, self.fit(after, image, mail), (), after, (), 0, False, True)]

    def _is_voiced(self, before: int, after: int) -> bool:
        face = self.known.faces[after]
        return face.leads or face.epoch != self.known.faces[before].epoch

    def _end(self, machine: int) -> int:
        return self.known.ends[self.known.faces[machine].member.node]
