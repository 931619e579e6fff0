"""One Spark and one cluster for all of these tests: each takes long to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local.commands import LocalCluster, local_cluster
from pyspark.sql import SparkSession

from shardlog.client import Compression
from shardlog.client.blocking import Client
from shardlog.local.cluster_file import load
from spark.sessions import configured

SHARD = "orders"
BATCHES = 40
ATTEMPTS = 3
"""So often a task may be tried."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master(f"local[2,{ATTEMPTS}]")
    session = configured(builder, tmp_path_factory.mktemp("spark")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.run("local up")
        cluster.run(f"shard create {SHARD}")
        fill(cluster)
        yield cluster


@pytest.fixture(scope="session")
def url(cluster: LocalCluster) -> str:
    return load(cluster.layout).url


@pytest.fixture(scope="session")
def place(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a snapshot of the shard is, in several segments."""
    place = f"file://{tmp_path_factory.mktemp('snapshots')}"
    cluster.run(f"snapshot create {SHARD} {place} --segment-bytes 65536")
    return place


def fill(cluster: LocalCluster) -> None:
    """All that a batch may have: keys or none, times or none, headers, every compression."""
    with Client(load(cluster.layout).url) as client:
        for compression in Compression:
            with client.producer(SHARD, compression=compression, batch_bytes=8192) as producer:
                for number in range(BATCHES):
                    producer.append_many([b"%d." % number + bytes(90) for _ in range(50)])
                    producer.append(
                        b"value",
                        b"key %d" % number,
                        headers=(("kind", b"x"), ("n", b"%d" % number)),
                    )
                    producer.append(b"", b"", timestamp_ms=1_000_000 + number)
                    producer.append(b"late", timestamp_ms=2_000_000 - number)


def directory(tmp_path: Path, name: str) -> str:
    return str(tmp_path / name)
