"""Commands wait for their turn, whoever is before them."""

import asyncio

import pytest

from coordinator.nodes import SHARD, Cluster
from coordinator.test_host import CREATE, steady, until
from shardlog.coordinator import commanding
from shardlog.coordinator.commanding import Commander
from shardlog.protocol.coordination import BUSY, Accepted, Expand, Rejected, TrimShard


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
