"""The public service of nodes, over real gRPC."""

import asyncio
from pathlib import Path

from node.public import Log, PublicCluster, failure, records
from shardlog.transport.generated import log_pb2
from shardlog_node.data_plane import PlaneLimits
from shardlog_node.log_stream import LogLimits

Failure = log_pb2.Failure


def story(
    tmp_path: Path,
    names: str = "a b c",
    limits: PlaneLimits | None = None,
    log_limits: LogLimits | None = None,
):
    """Runs a coroutine function with a cluster, its leader of `orders`, and a client there."""

    def run(told) -> None:
        async def whole() -> None:
            cluster = PublicCluster(tmp_path, names, limits, log_limits)
            async with cluster.running():
                leader = await cluster.create("orders")
                async with cluster.log(leader) as log:
                    await told(cluster, leader, log)

        asyncio.run(whole())

    return run


def test_appended_and_read_back(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        for request in range(1, 33):
            await appending.send(request, b"%d" % request, b"and more")
        answers = [await appending.next() for _ in range(32)]
        first = appending.session + 1
        assert [(it.request, it.base_offset) for it in answers] == [
            (n, first + 2 * (n - 1)) for n in range(1, 33)
        ]
        assert {it.session for it in answers} == {appending.session}
        found = await records(log.read("orders"))
        assert [it.value for it in found[::2]] == [b"%d" % n for n in range(1, 33)]
        assert [it.offset for it in found] == list(range(first, first + 64))
