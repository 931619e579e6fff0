"""All nodes go down and come back on their files: what is taken up, and who can lead with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from node.cluster import Cluster
from node.test_scrubbing import damage, entries
from shardlog.checksum import seal_body
from shardlog.coordinator.driver import Unanswered
from shardlog.protocol.coordination import CoordinatorLimits
from shardlog.protocol.messages import (
    Ack,
    Append,
    BecomeLeader,
    CannotServe,
    Envelope,
    Fetched,
    Read,
    ReadResult,
)
from shardlog.protocol.replica import Replica

SHARD = "orders"
APPENDS = 20
PATIENCE_MS = 30_000


class Lossy(Cluster):
    """What `loses` says is lost between nodes; `asked` and `told` are what the coordinator hears.

    `asked` are those who were to lead, with the epoch, `told` those who said that they cannot.
    """

    def __init__(self, directory: Path) -> None:
        # A candidate that cannot go on has the time to say so, however slow the machine is.
        patient = CoordinatorLimits(election_timeout_ms=PATIENCE_MS)
        super().__init__(directory, "a b c", limits=patient, call_timeout_ms=PATIENCE_MS)
        self.loses: Callable[[Envelope], bool] = lambda envelope: False
        self.asked: list[tuple[str, int]] = []
        self.told: list[tuple[str, int]] = []

    def deliver(self, envelope: Envelope) -> None:
        if not self.loses(envelope):
            super().deliver(envelope)

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope:
        message = envelope.message
        if isinstance(message, BecomeLeader):
            self.asked.append((envelope.dst, message.epoch))
        answer = await super().call(envelope, timeout_ms)
        if isinstance(answer.message, CannotServe):
            self.told.append((envelope.dst, answer.message.epoch))
        return answer

    def replica(self, node: str) -> Replica:
        return self.nodes[node].replicas[SHARD].replica

    async def stop_all(self) -> None:
        for name in list(self.nodes):
            await self.stop(name)

    async def bases(self, leader: str, end: int) -> list[int]:
        """Where the entries stand that a client reads, up to `end`."""
        found: list[int] = []
        while not found or found[-1] + 1 < end:
            try:
                read = await self.ask(leader, SHARD, Read(2, found[-1] + 1 if found else 0, 200))
            except (TimeoutError, Unanswered):
                continue
            assert isinstance(read, ReadResult), read
            found += [entry.header.base for entry in read.entries]
        return found


async def until(wanted: Callable[[], bool]) -> None:
    """The cluster's own deadline ends it."""
    while not wanted():
        await asyncio.sleep(0.01)


async def begun(cluster: Lossy) -> tuple[str, int, range]:
    """A leader, a session, and offsets of entries that all have on disk and nobody has committed.

    Acks are lost from then on.
    """
    leader = await cluster.create(SHARD)
    session = await cluster.session(leader, SHARD)
    first = await cluster.append(leader, SHARD, session, 1) + 1
    end = first + APPENDS
    cluster.loses = lambda envelope: isinstance(envelope.message, Ack)
    for request in range(2, APPENDS + 2):
        body = b"record %d of %d" % (request, session)
        message = Append(session, request, 1, body, seal_body(body))
        cluster.nodes[leader].receive(Envelope(SHARD, "client", 0, leader, 0, message))
    for name in cluster.names:
        await entries(cluster.nodes[name].replicas[SHARD], end)
    assert max(cluster.replica(name).commit for name in cluster.names) <= first
    return leader, session, range(first, end)


def test_V10_uncommitted_entries_come_back_after_all_nodes_were_down(tmp_path: Path):
    async def story() -> None:
        cluster = Lossy(tmp_path)
        async with cluster.running():
            _, session, offsets = await begun(cluster)
            first, end = offsets.start, offsets.stop
            held = [cluster.replica(name).log.between(first, end) for name in cluster.names]
            before = cluster.coordinator.shards[SHARD].epoch
            await cluster.stop_all()
            cluster.loses = lambda envelope: False
            for name in cluster.names:
                cluster.start(name)
            found = await cluster.until(SHARD, lambda it: it.epoch > before)
            assert found.leader is not None
            leader = found.leader.node
            await until(lambda: all(cluster.replica(n).commit >= end for n in cluster.names))
            now = [cluster.replica(name).log.between(first, end) for name in cluster.names]
            assert now == held == [held[0]] * 3
            assert [header.base for header in held[0]] == list(offsets)
            assert (await cluster.bases(leader, end))[-APPENDS:] == list(offsets)
            again = await cluster.append(leader, SHARD, session, APPENDS + 1)
            assert again == offsets[-1], "a retry finds what came back"

    asyncio.run(story())


def test_T13_a_candidate_that_cannot_repair_says_so_and_another_one_leads(tmp_path: Path):
    """Of two that come back each has a bad entry, and one gets nothing from the other."""

    async def story() -> None:
        cluster = Lossy(tmp_path)
        async with cluster.running():
            leader, _, offsets = await begun(cluster)
            others = [name for name in cluster.names if name != leader]
            for name, base in zip(others, (offsets[3], offsets[5]), strict=True):
                hosted = cluster.nodes[name].replicas[SHARD]
                damage(hosted, *hosted.replica.log.between(base, base + 1))
            before = cluster.coordinator.shards[SHARD].epoch
            await cluster.stop_all()
            cluster.asked.clear()
            unable: list[str] = []

            def loses(envelope: Envelope) -> bool:
                """All that is fetched by whoever fetches first."""
                if not isinstance(envelope.message, Fetched):
                    return False
                if not unable:
                    unable.append(envelope.dst)
                return envelope.dst in unable

            cluster.loses = loses
            for name in others:
                cluster.start(name)
            found = await cluster.until(SHARD, lambda it: it.epoch > before)
            assert found.leader is not None
            assert {*unable, found.leader.node} == {*others}
            assert {node for node, _ in cluster.told} == {*unable}
            assert cluster.asked[0] == cluster.told[0]
            assert found.epoch > cluster.told[-1][1]
            cluster.loses = lambda envelope: False
            assert (await cluster.bases(found.leader.node, offsets.stop))[-APPENDS:] == list(
                offsets
            )

    asyncio.run(story())
