"""Machines are read now and then, and those that are cordoned more often."""

from __future__ import annotations

import asyncio

from kube_operator.emulator import Api
from kube_operator.installation import machine_body
from kube_operator.test_nodes import pod
from shardlog.process.logs import logger_of
from shardlog_operator.kube import Kube
from shardlog_operator.machines import Machines
from shardlog_operator.nodes import Nodes, node_pod


async def cordon(api: Api, name: str, cordoned: bool = True) -> None:
    await api.change("nodes", name, {"spec": {"unschedulable": cordoned}})


def test_one_that_is_not_cordoned_any_more_is_noticed_before_the_others_are_read():
    async def story() -> None:
        async with Api().running() as api:
            kube, nodes, changes = Kube("logs", api.connect), Nodes(lambda: 0.0), []
            for number in range(3):
                await api.create("nodes", machine_body(f"machine-{number}"))
                place = {"nodeName": f"machine-{number}"}
                nodes.take(node_pod(pod(f"node-{number}", spec=place)))
            machines = Machines(
                kube, nodes, lambda: changes.append(cordoned()), logger_of("operator")
            )

            def cordoned() -> set[str]:
                return {name for name, machine in nodes.machines.items() if machine.cordoned}

            try:
                await cordon(api, "machine-1")
                assert not await machines.read()
                await machines.read_cordoned()
                assert changes == [{"machine-1"}]
                await cordon(api, "machine-1", False)
                await cordon(api, "machine-2")
                await machines.read_cordoned()
                assert changes[1:] == [set()], "nobody has looked at the last one yet"
                assert len(nodes.machines) == 3
                await machines.read()
                assert changes[2:] == [{"machine-2"}]
                await api.delete("nodes", "machine-2")
                await machines.read_cordoned()
                assert nodes.machines.keys() == {"machine-0", "machine-1"}
            finally:
                await kube.close()

    asyncio.run(story())
