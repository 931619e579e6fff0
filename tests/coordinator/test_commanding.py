"""Commands wait for their turn, whoever is before them."""

import asyncio
from typing import cast

import pytest

from coordinator.nodes import SHARD, Cluster
from coordinator.test_host import CREATE, steady, until
from shardlog.coordinator import commanding
from shardlog.coordinator.commanding import IN_DOUBT, Commander
from shardlog.coordinator.host import CoordinatorHost
from shardlog.protocol.coordination import BUSY, Accepted, Command, Expand, Rejected, TrimShard


async def met_by_another(cluster: Cluster) -> tuple[Accepted | Rejected, Accepted | Rejected]:
    """What a command gets that comes while the machine is at one that did not come this way."""
    host = cluster.host()
    async with cluster.running(host):
        await host.command(SHARD, CREATE)
        await until(host, steady)
        first = asyncio.create_task(host.command(SHARD, Expand("d")))
        await asyncio.sleep(0)
        refused = await host.command(SHARD, TrimShard(0))
        answer = await Commander(host).command(SHARD, TrimShard(0))
        await first
        return refused, answer


def test_a_command_is_judged_when_the_one_before_it_is_done():
    refused, answer = asyncio.run(met_by_another(Cluster("a b c d")))
    assert isinstance(refused, Rejected)
    assert refused.reason == BUSY
    assert isinstance(answer, Accepted) or answer.reason == "a reconfiguration is in progress"


def test_a_command_that_was_never_accepted_is_not_in_doubt(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commanding, "COMMAND_TIMEOUT_MS", 0)
    _, answer = asyncio.run(met_by_another(Cluster("a b c d")))
    assert isinstance(answer, Rejected)
    assert answer.reason == BUSY


def test_a_command_without_an_answer_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commanding, "COMMAND_TIMEOUT_MS", 0)

    async def asked(cluster: Cluster) -> Accepted | Rejected:
        host = cluster.host()
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            await until(host, steady)
            return await Commander(host).command(SHARD, Expand("d"))

    answer = asyncio.run(asked(Cluster("a b c d")))
    assert isinstance(answer, Rejected)
    assert "it may be done, or not" in answer.reason


class Busy:
    """A host that is busy when it is asked first, and does not answer then."""

    def __init__(self) -> None:
        self.asked = 0

    async def command(self, shard: str, command: Command) -> Accepted | Rejected:
        self.asked += 1
        if self.asked > 1:
            await asyncio.Event().wait()
        return Rejected(1, BUSY)


def test_a_command_without_an_answer_is_in_doubt_though_it_was_refused_before(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(commanding, "COMMAND_TIMEOUT_MS", 200)
    host = Busy()
    commander = Commander(cast(CoordinatorHost, host))
    assert asyncio.run(commander.command(SHARD, TrimShard(0))) is IN_DOUBT
    assert host.asked == 2
