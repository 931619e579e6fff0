"""Makes the golden volumes of the format version that is current.

    PYTHONPATH=tests python tests/golden_volumes/make.py v1

Run once for each version and never again for an old one: these volumes have to be taken up for
ever.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
from pathlib import Path

import uvloop
from client.cluster import ClientCluster, until

from golden_volumes import HERE, NODES, SHARD
from shardlog.cli.record_format import renderer
from shardlog.client import Client, Compression
from shardlog.metadata.records import encode_shard
from shardlog.protocol.coordination import Promote, TrimShard
from shardlog.protocol.shard import Shard

FIRST = 10


async def lived(directory: Path) -> tuple[Shard, list[object]]:
    """Handed over, trimmed, with a node that was away: what volumes have been through."""
    cluster = ClientCluster(directory, " ".join(NODES))
    async with cluster.running():
        first = await cluster.create(SHARD)
        async with Client(cluster.url) as client:
            await append(client, 0, 60, Compression.NONE)
            second = next(node for node in NODES if node != first)
            await cluster.coordinator.command(SHARD, Promote(second))
            assert await cluster.leader(SHARD, first) == second
            await append(client, 60, 120, Compression.ZSTD)
            away = next(node for node in NODES if node not in (first, second))
            await cluster.stop(away)
            await append(client, 120, 150, Compression.NONE)
            await cluster.begin(away)
            await cluster.coordinator.command(SHARD, TrimShard(FIRST))
            await until(lambda: len({standing(cluster, node) for node in NODES}) == 1)
            records = [record async for record in client.read(SHARD, FIRST)]
        shard = cluster.coordinator.shards[SHARD]
    return shard, [json.loads(line) for line in renderer("json", False, None)(records).splitlines()]


async def append(client: Client, start: int, end: int, compression: Compression) -> None:
    """With keys and without, with headers, empty, long, and no text."""
    async with client.producer(SHARD, compression=compression) as producer:
        for number in range(start, end):
            value = b"%d " % number * (1 + 1500 * (number % 20 == 7)) if number % 9 else b""
            key = b"key-%d" % (number % 5) if number % 3 else None
            headers = (
                [("number", b"%d" % number), ("bytes", b"\xff\x00")] if number % 4 == 0 else ()
            )
            await producer.append(
                value, key, headers=headers, timestamp_ms=1_700_000_000_000 + number
            )


def standing(cluster: ClientCluster, node: str) -> tuple[int, int, int]:
    log = cluster.nodes[node].replicas[SHARD].replica
    return log.log.first, log.log.end, log.commit


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            shard, records = runner.run(lived(directory))
        with tarfile.open(HERE / f"{version}.tar.gz", "w:gz") as archive:
            for node in NODES:
                archive.add(directory / node, node)
    lines = ",\n".join(json.dumps(record) for record in records)
    record = json.dumps(encode_shard(shard).decode())
    (HERE / f"{version}.json").write_text(f'{{"record": {record},\n"records": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
