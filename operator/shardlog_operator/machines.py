"""The machines that node pods run on: whether they are cordoned, and where they stand.

Each is read every now and then, and only those that host a node: a watch of all machines would
bring a status of each of them every few seconds.  Those that are cordoned are read more often: what
was moved away from one that is not any more would stand where it is not wanted.  An operator that
may not read them goes on without: then every machine counts as a failure domain of its own, and
cordons are not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from shardlog.process.logs import Logger
from shardlog_operator.kube import ApiFailure, Forbidden, Kube, NotFound
from shardlog_operator.nodes import Machine, Nodes, machine_of

LOOK_S = 1.0
LOOKS = 10
"""After so many looks at those that are cordoned all are read."""


class Machines:
    """`run` is a task; `changed` is told when a machine is not as it was."""

    def __init__(self, kube: Kube, nodes: Nodes, changed: Callable[[], None], log: Logger) -> None:
        self._kube = kube
        self._nodes = nodes
        self._changed = changed
        self._log = log
        self._forbidden = False

    async def run(self) -> None:
        while True:
            new = await self.read()
            for _ in range(1 if new else LOOKS):
                await asyncio.sleep(LOOK_S)
                await self.read_cordoned()

    async def read(self) -> bool:
        """Whether pods run on machines that nobody could read yet."""
        wanted = {pod.machine for pod in self._nodes.pods.values() if pod.machine}
        self._note(await self._read_all(wanted))
        return not wanted

    async def read_cordoned(self) -> None:
        known = self._nodes.machines
        cordoned = {name for name, machine in known.items() if machine.cordoned}
        if cordoned:
            others = {name: known[name] for name in known.keys() - cordoned}
            self._note({**others, **await self._read_all(cordoned)})

    async def _read_all(self, names: Collection[str]) -> dict[str, Machine]:
        found = {name: await self._read(name) for name in sorted(names)}
        return {name: machine for name, machine in found.items() if machine is not None}

    def _note(self, found: dict[str, Machine]) -> None:
        if found != self._nodes.machines:
            self._nodes.machines = found
            self._changed()

    async def _read(self, name: str) -> Machine | None:
        try:
            return machine_of(await self._kube.get(self._kube.machine(name)))
        except NotFound:
            return None
        except Forbidden as failure:
            if not self._forbidden:
                self._forbidden = True
                self._log.warning("machines are not read", why=str(failure))
            return None
        except ApiFailure:
            return self._nodes.machines.get(name)
