"""Volumes written by every format version there was: nodes take them up, and clients go on."""

import asyncio
import json
from pathlib import Path

import pytest
import uvloop
from golden_volumes import NODES, SHARD, VERSIONS, GoldenVolumes

from client.cluster import ClientCluster
from shardlog.cli.record_format import renderer
from shardlog.client import Client, Record
from shardlog.metadata.records import encode_shard, shard_key
from shardlog.storage.layout import FORMAT_VERSION


def plain(records: list[Record]) -> list[object]:
    return [json.loads(line) for line in renderer("json", False, None)(records).splitlines()]


def test_there_are_some_for_the_current_version():
    assert VERSIONS[-1] == f"v{FORMAT_VERSION}"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_in_the_metadata_is_written_as_it_was(version: str):
    golden = GoldenVolumes(version)
    assert encode_shard(golden.shard) == golden.record
    assert {member.node for member in golden.shard.ensemble} == set(NODES)


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_taken_up_with_all_records(tmp_path: Path, version: str):
    golden = GoldenVolumes(version)
    golden.unpack(tmp_path)
    first, last = golden.records[0]["offset"], golden.records[-1]["offset"]

    async def story() -> None:
        cluster = ClientCluster(tmp_path, " ".join(NODES))
        await cluster.coordinator.store.compare_and_swap(shard_key(SHARD), 0, golden.record)
        async with cluster.running():
            await cluster.leader(SHARD)
            async with Client(cluster.url) as client, client.producer(SHARD) as producer:
                assert plain([each async for each in client.read(SHARD, first)]) == golden.records
                assert await producer.append(b"one more") > last
                more = [each.value async for each in client.read(SHARD, last + 1)]
                assert more == [b"one more"]
        incarnations = {member.incarnation for member in golden.shard.ensemble}
        found = cluster.coordinator.shards[SHARD]
        assert {member.incarnation for member in found.ensemble} == incarnations

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
