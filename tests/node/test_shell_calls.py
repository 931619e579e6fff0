"""The control plane of a real node: calls for others, calls without an answer, snapshots."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from cluster_keys import KEY

from node.shell import Cluster, append
from shardlog.checksum import seal_body
from shardlog.protocol.history import Span
from shardlog.protocol.messages import (
    Envelope,
    Fetch,
    Message,
    Refused,
    StatusReport,
    StatusRequest,
    Trim,
)
from shardlog.transport.control import ControlClient, ControlLimits
from shardlog.transport.entries import split_entries
from shardlog.transport.failures import Rejected, Unavailable
from shardlog_node.snapshots import PIECE_BYTES_MAX, STREAMS_MAX

TIMEOUT_MS = 20_000


class Caller:
    """Of one node that leads `orders` alone."""

    def __init__(self, cluster: Cluster, client: ControlClient) -> None:
        self.cluster = cluster
        self.client = client
        self.address = cluster.nodes["a"].ready["control"]
        shard = cluster.coordinator.shards["orders"]
        assert shard.leader is not None
        self.incarnation = shard.leader.incarnation
        self.epoch = shard.epoch

    def envelope(
        self, message: Message, shard: str = "orders", node: str = "a", incarnation: int = -1
    ) -> Envelope:
        meant = self.incarnation if incarnation < 0 else incarnation
        return Envelope(shard, "me", 0, node, meant, message)

    async def call(self, envelope: Envelope) -> Message | None:
        answer = await self.client.call(self.address, envelope, TIMEOUT_MS)
        return answer.message if answer else None

    async def status(self) -> StatusReport:
        found = await self.call(self.envelope(StatusRequest(self.epoch)))
        assert isinstance(found, StatusReport), found
        return found

    def stream(self, envelope: Envelope) -> AsyncGenerator[bytes, None]:
        pieces = self.client.fetch_snapshot(self.address, envelope, TIMEOUT_MS)
        return cast(AsyncGenerator[bytes, None], pieces)

    async def fetch(self, envelope: Envelope) -> bytes:
        return b"".join([piece async for piece in self.stream(envelope)])


@asynccontextmanager
async def leading(directory: Path, records: int, size: int = 10) -> AsyncIterator[Caller]:
    cluster = Cluster(directory, "a")
    async with cluster.running():
        await cluster.create("orders")
        async with cluster.client("a", "orders") as client:
            await append(client, records, size)
        control = ControlClient(ControlLimits(), None, KEY)
        try:
            yield Caller(cluster, control)
        finally:
            await control.close()


def test_a_call_for_somebody_else_is_rejected(tmp_path):
    async def story():
        async with leading(tmp_path, 1) as caller:
            with pytest.raises(Rejected, match="this is a, and the call"):
                await caller.call(caller.envelope(StatusRequest(1), node="b"))

    asyncio.run(story())


def test_a_refusal_is_an_answer(tmp_path):
    async def story():
        async with leading(tmp_path, 1) as caller:
            found = await caller.call(caller.envelope(StatusRequest(1), incarnation=7))
            assert isinstance(found, Refused)

    asyncio.run(story())


def test_trim_is_taken_without_an_answer(tmp_path):
    async def story():
        async with leading(tmp_path, 20) as caller:
            assert await caller.call(caller.envelope(Trim(caller.epoch, 10))) is None
            first = ("shardlog_log_first_offset", "orders")
            while caller.cluster.nodes["a"].metrics()[first] < 10:
                await asyncio.sleep(0.01)

    asyncio.run(story())


def test_a_snapshot_is_every_committed_entry(tmp_path):
    async def story():
        async with leading(tmp_path, 30, size=PIECE_BYTES_MAX // 8) as caller:
            status = await caller.status()
            asked = Fetch(status.epoch, status.history, 0, status.commit)
            raw = await caller.fetch(caller.envelope(asked))
            assert len(raw) > 3 * PIECE_BYTES_MAX
            entries = split_entries(memoryview(raw))
            assert entries[0][0].base == 0
            assert entries[-1][0].end == status.commit
            for (header, body), (following, _) in pairwise(entries):
                assert header.end == following.base
                assert following.parent == header.checksum
                assert seal_body(body) == header.body_checksum
            half = entries[len(entries) // 2][0].base
            rest = Fetch(status.epoch, (), half, status.commit)
            assert raw.endswith(await caller.fetch(caller.envelope(rest)))
            assert await caller.fetch(caller.envelope(Fetch(status.epoch, (), half, half))) == b""

    asyncio.run(story())


def test_snapshots_that_cannot_be_given(tmp_path):
    async def story():
        async with leading(tmp_path, 10) as caller:
            epoch, commit = caller.epoch, (await caller.status()).commit
            whole = Fetch(epoch, (), 0, commit)
            with pytest.raises(Rejected, match="no such replica of payments"):
                await caller.fetch(caller.envelope(whole, shard="payments"))
            with pytest.raises(Rejected, match="no such replica of orders"):
                await caller.fetch(caller.envelope(whole, incarnation=7))
            other = (Span(epoch + 1, 0),)
            with pytest.raises(Rejected, match="another history"):
                await caller.fetch(caller.envelope(Fetch(epoch, other, 0, commit)))
            with pytest.raises(Rejected, match="of a log from 0 on"):
                await caller.fetch(caller.envelope(Fetch(epoch, (), 5, 4)))
            with pytest.raises(Unavailable, match="not committed and durable"):
                await caller.fetch(caller.envelope(Fetch(epoch, (), 0, commit + 1)))
            assert await caller.fetch(caller.envelope(whole))

    asyncio.run(story())


def test_only_so_many_snapshots_at_once_and_those_given_up_do_not_count(tmp_path):
    async def story():
        async with leading(tmp_path, 40, size=PIECE_BYTES_MAX // 2) as caller:
            commit = (await caller.status()).commit
            asked = caller.envelope(Fetch(caller.epoch, (), 0, commit))
            streams = [caller.stream(asked) for _ in range(STREAMS_MAX)]
            for stream in streams:
                await anext(stream)
            with pytest.raises(Unavailable, match="snapshots are being read"):
                await caller.fetch(asked)
            for stream in streams:
                await stream.aclose()
            while True:
                try:
                    assert await caller.fetch(asked)
                    break
                except Unavailable:
                    await asyncio.sleep(0.01)

    asyncio.run(story())
