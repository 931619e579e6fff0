"""Connections with certificates, and without the right ones."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from transport.ends import certificates

from client.cluster import SHARD, ClientCluster
from shardlog.client import Client
from shardlog.client.failures import DeadlineExceeded, NodeRejected


def cluster_with_tls(tmp_path: Path) -> Callable[[Callable[[str], Awaitable[None]]], None]:
    known = certificates()

    def run(told: Callable[[str], Awaitable[None]]) -> None:
        async def whole() -> None:
            tls = known.node_context(mutual=True)
            cluster = ClientCluster(tmp_path, tls=tls, link_tls=known.client_context())
            async with cluster.running():
                await cluster.create(SHARD)
                await told(cluster.addresses_url)

        asyncio.run(whole())

    return run


def test_both_sides_show_certificates(tmp_path: Path):
    @cluster_with_tls(tmp_path)
    async def _(url: str) -> None:
        async with Client(url, tls=certificates().client_context()) as client:
            async with client.producer(SHARD) as producer:
                offset = await producer.append(b"x" * 100_000)
            (record,) = [record async for record in client.read(SHARD)]
            assert (record.offset, len(record.value)) == (offset, 100_000)


def test_a_node_that_this_client_does_not_believe_ends_it_at_once(tmp_path: Path):
    @cluster_with_tls(tmp_path)
    async def _(url: str) -> None:
        async with Client(url, tls=ssl.create_default_context()) as client:
            with pytest.raises(NodeRejected, match="do not accept each other"):
                await client.end(SHARD)
            producer = client.producer(SHARD)
            with pytest.raises(NodeRejected):
                await producer.append(b"x")
            await producer.close()


def test_S28_a_client_without_a_certificate_is_told_at_once(tmp_path: Path):
    @cluster_with_tls(tmp_path)
    async def _(url: str) -> None:
        tls = certificates().client_context(known=False)
        async with Client(url, tls=tls) as client:
            with pytest.raises(NodeRejected, match="wants a client certificate"):
                await client.end(SHARD, deadline_ms=600_000)
            with pytest.raises(NodeRejected, match="wants a client certificate"):
                await client.producer(SHARD, deadline_ms=600_000).append(b"x")


def test_S28_a_client_without_tls_is_told_in_the_end(tmp_path: Path):
    @cluster_with_tls(tmp_path)
    async def _(url: str) -> None:
        async with Client(url) as client:
            with pytest.raises(DeadlineExceeded, match="does it want TLS"):
                await client.end(SHARD, deadline_ms=1_000)
