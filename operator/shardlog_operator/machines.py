"""The machines that node pods run on: whether they are cordoned, and where they stand.

Each is read every now and then, and only those that host a node: a watch of all machines would
bring a status of each of them every few seconds.  An operator that may not read them goes on
without: then every machine counts as a failure domain of its own, and cordons are not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shardlog.process.logs import Logger
from shardlog_operator.kube import ApiFailure, Forbidden, Kube, NotFound
from shardlog_operator.nodes import Machine, Nodes, machine_of

READ_S = 10.0
ALONE_S = 1.0


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
            await asyncio.sleep(ALONE_S if new else READ_S)

    async def read(self) -> bool:
        """Whether pods run on machines that nobody could read yet."""
        wanted = {pod.machine for pod in self._nodes.pods.values() if pod.machine}
        found: dict[str, Machine] = {}
        for name in sorted(wanted):
            machine = await self._read(name)
            if machine is not None:
                found[name] = machine
        if found != self._nodes.machines:
            self._nodes.machines = found
            self._changed()
        return not wanted

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
