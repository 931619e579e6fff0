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

from shardlog.sim.explore_coordinators import Store
from shardlog.sim.explore_known import Known
from shardlog.sim.explore_values import Names, canonical

State = tuple[int, ...]


class Symmetry:
    def __init__(
        self,
        known: Known,
        nodes: tuple[str, ...],
        controllers: tuple[str, ...],
        groups: tuple[tuple[str, ...], ...],
    ) -> None:
        self.known = known
        self.nodes = len(nodes)
        self.at_store = 2 * len(nodes) + len(controllers)
        self.names = {end: name for name, end in known.ends.items()}
        self.groups = tuple(
            tuple(known.ends[name] for name in group) for group in groups if len(group) > 1
        )
        self.exchanges: dict[tuple[int, ...], Exchange] = {}

    def representative(self, state: State) -> State:
        if not self.groups:
            return state
        choices = [self._orders(state, group) for group in self.groups]
        best: State | None = None
        for orders in product(*choices):
            key = tuple(end for order in orders for end in order)
            exchange = self.exchanges.get(key)
            if exchange is None:
                exchange = self.exchanges[key] = self._exchange(orders)
            made = exchange.apply(state)
            if best is None or made < best:
                best = made
        assert best is not None
        return best

    def _orders(self, state: State, group: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The orders of a group's ends by likeness; more than one where some are alike."""
        likenesses = self.known.likenesses[group[0] >= self.nodes]
        ranked = sorted([(likenesses[state[end]], end) for end in group])
        if len({likeness for likeness, _ in ranked}) == len(ranked):
            return [tuple([end for _, end in ranked])]
        ties = [
            list(permutations([end for _, end in run]))
            for _, run in groupby(ranked, key=lambda each: each[0])
        ]
        return [tuple(end for part in parts for end in part) for parts in product(*ties)]

    def _exchange(self, orders: tuple[tuple[int, ...], ...]) -> Exchange:
        """What stands at the n-th end of each order moves to the n-th end of its group."""
        moves = {end: end for end in self.names}
        for group, order in zip(self.groups, orders, strict=True):
            moves |= dict(zip(order, group, strict=True))
        return Exchange(self.known, self.names, moves, self.nodes, self.at_store)


class Exchange:
    """One exchange of names, with the numbers of everything it has renamed so far."""

    def __init__(
        self,
        known: Known,
        names: dict[int, str],
        moves: dict[int, int],
        nodes: int,
        at_store: int,
    ) -> None:
        self.known = known
        self.names: Names = {names[end]: names[to] for end, to in moves.items() if end != to}
        self.nodes = nodes
        self.at_store = at_store
        inverse = {to: end for end, to in moves.items()}
        self.sources = [inverse[to] for to in range(nodes)]
        self.controllers = [inverse[to] for to in range(2 * nodes, at_store)]
        self._replicas: dict[int, int] = {}
        self._coordinators: dict[int, int] = {}
        self._stores: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._messages: dict[int, int] = {}
        self._images: dict[int, int] = {}

    def apply(self, state: State) -> State:
        if not self.names:
            return state
        nodes, at_store = self.nodes, self.at_store
        machine, disk, message = self.replica, self.image, self.message
        width = at_store + 6
        return (
            *[machine(state[end]) for end in self.sources],
            *[disk(state[nodes + end]) for end in self.sources],
            *[self.coordinator(state[end]) for end in self.controllers],
            self.store(state[at_store]),
            state[at_store + 1],
            self.leaders(state[at_store + 2]),
            *state[at_store + 3 : width],
            *sorted([message(each) for each in state[width:]]),
        )

    def replica(self, number: int) -> int:
        found = self._replicas.get(number)
        if found is None:
            found = self.known.replica(self._renamed(self.known.replicas.values[number]))
            self._replicas[number] = found
        return found

    def image(self, number: int) -> int:
        found = self._images.get(number)
        if found is None:
            value = self.known.images.values[number]
            found = number if value is None else self.known.image(self._renamed(value))
            self._images[number] = found
        return found

    def coordinator(self, number: int) -> int:
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
