"""Symmetry: names decide nothing, so one state stands for all that differ by an exchange of names.

Each interchangeable name can take the place of any other of its group.  The representative of a
state is found in two moves.  First the ends are sorted by a *likeness* of the machine there that
no exchange of names can alter; that leaves few exchanges to try, mostly one.  Then the smallest of
the tuples that these give is taken.

For this to be right the transitions must not depend on names.  Where the coordinator's choice
would, `explore_coordinators` branches over all that are equally good.
"""

from __future__ import annotations

from itertools import groupby, permutations, product
from typing import Any

from shardlog.sim.explore_cells import COORDINATES, Cells
from shardlog.sim.explore_coordinators import Store
from shardlog.sim.explore_values import Names, canonical

State = tuple[int, ...]


class Symmetry:
    """`names` are those of all ends, in the order of a state; the nodes come first."""

    def __init__(
        self,
        cells: Cells,
        nodes: tuple[str, ...],
        names: tuple[str, ...],
        groups: tuple[tuple[str, ...], ...],
    ) -> None:
        self.cells = cells
        self.nodes = len(nodes)
        self.names = names
        ends = {name: at for at, name in enumerate(names)}
        self.groups = tuple(tuple(ends[name] for name in each) for each in groups if len(each) > 1)
        self.grouped = tuple(end for group in self.groups for end in group)
        self._likenesses: dict[int, int] = {}
        self._exchanges: dict[tuple[int, ...], Exchange] = {}
        self._tried: dict[tuple[int, ...], list[Exchange]] = {}

    def representative(self, state: State) -> State:
        known = self._likenesses
        try:
            likenesses = tuple([known[state[end]] for end in self.grouped])
        except KeyError:
            likenesses = tuple([self._likeness(state[end]) for end in self.grouped])
        tried = self._tried.get(likenesses)
        if tried is None:
            tried = self._tried[likenesses] = self._to_try(likenesses)
        if len(tried) == 1:
            return tried[0].apply(state)
        return min([exchange.apply(state) for exchange in tried])

    def _likeness(self, cell: int) -> int:
        found = self._likenesses.get(cell)
        if found is None:
            machine, disk, _ = self.cells.values[cell]
            found = self.cells.known.likenesses[disk == COORDINATES][machine]
            self._likenesses[cell] = found
        return found

    def _to_try(self, likenesses: tuple[int, ...]) -> list[Exchange]:
        """The exchanges that sort each group by likeness; more than one where some are alike."""
        by_end = dict(zip(self.grouped, likenesses, strict=True))
        choices: list[list[tuple[int, ...]]] = []
        for group in self.groups:
            ranked = sorted(group, key=lambda end: (by_end[end], end))
            ties = [list(permutations(run)) for _, run in groupby(ranked, key=by_end.__getitem__)]
            choices.append([tuple(end for part in each for end in part) for each in product(*ties)])
        return [self._exchange(orders) for orders in product(*choices)]

    def _exchange(self, orders: tuple[tuple[int, ...], ...]) -> Exchange:
        """What stands at the n-th end of each order moves to the n-th end of its group."""
        moves = {end: end for end in range(len(self.names))}
        for group, order in zip(self.groups, orders, strict=True):
            moves |= dict(zip(order, group, strict=True))
        key = tuple(moves.values())
        found = self._exchanges.get(key)
        if found is None:
            found = self._exchanges[key] = Exchange(self.cells, self.names, moves)
        return found


class Exchange:
    """One exchange of names, with the numbers of everything it has renamed so far."""

    def __init__(self, cells: Cells, names: tuple[str, ...], moves: dict[int, int]) -> None:
        self.cells = cells
        self.known = cells.known
        self.names: Names = {names[end]: names[to] for end, to in moves.items() if end != to}
        inverse = {to: end for end, to in moves.items()}
        self.sources = [inverse[to] for to in range(len(names))]
        self.width = len(names)
        self._cells: dict[int, int] = {}
        self._replicas: dict[int, int] = {}
        self._images: dict[int, int] = {}
        self._coordinators: dict[int, int] = {}
        self._stores: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._messages: dict[int, int] = {}

    def apply(self, state: State) -> State:
        if not self.names:
            return state
        cells, width = self._cells, self.width
        try:
            moved = [cells[state[end]] for end in self.sources]
        except KeyError:
            moved = [self.cell(state[end]) for end in self.sources]
        return (
            *moved,
            self.store(state[width]),
            state[width + 1],
            self.leaders(state[width + 2]),
            *state[width + 3 :],
        )

    def cell(self, number: int) -> int:
        found = self._cells.get(number)
        if found is None:
            machine, disk, mail = self.cells.values[number]
            mail = tuple(sorted([self.message(each) for each in mail]))
            if disk == COORDINATES:
                machine = self._coordinator(machine)
            else:
                machine, disk = self._replica(machine), self._image(disk)
            found = self._cells[number] = self.cells.of(machine, disk, mail)
        return found

    def _replica(self, number: int) -> int:
        found = self._replicas.get(number)
        if found is None:
            found = self.known.replica(self._renamed(self.known.replicas.values[number]))
            self._replicas[number] = found
        return found

    def _image(self, number: int) -> int:
        found = self._images.get(number)
        if found is None:
            value = self.known.images.values[number]
            found = number if value is None else self.known.image(self._renamed(value))
            self._images[number] = found
        return found

    def _coordinator(self, number: int) -> int:
        found = self._coordinators.get(number)
        if found is None:
            found = self.known.coordinator(self._renamed(self.known.coordinators.values[number]))
            self._coordinators[number] = found
        return found

    def store(self, number: int) -> int:
        found = self._stores.get(number)
        if found is None:
            value = self.known.stores.values[number]
            found = self.known.store(Store(value.version, self._renamed(value.record)))
            self._stores[number] = found
        return found

    def leaders(self, number: int) -> int:
        found = self._leaders.get(number)
        if found is None:
            value = self._renamed(self.known.leaders.values[number])
            found = self._leaders[number] = self.known.leaders.of(value, value)
        return found

    def message(self, number: int) -> int:
        found = self._messages.get(number)
        if found is None:
            envelope = self._renamed(self.known.flights[number].envelope)
            found = self._messages[number] = self.known.message(envelope)
        return found

    def _renamed(self, value: Any) -> Any:
        return canonical(value, self.names)
