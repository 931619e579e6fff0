"""B10: a cluster that speaks TLS alone is read and written, with certificates from files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from client.cluster import SHARD, ClientCluster
from pyspark.sql.types import BinaryType, StructField, StructType
from transport.ends import certificates

from shardlog_spark.failures import BadOption, SparkFailure
from shardlog_spark.options import TlsFiles, read_options
from shardlog_spark.reading import ShardlogReader
from shardlog_spark.writing import ShardlogWriter
from spark.test_readers import read

LIVE = {"shardlog.bootstrap.servers": "127.0.0.1:1", "subscribe": SHARD}
VALUES = StructType([StructField("value", BinaryType())])


def files(directory: Path) -> dict[str, str]:
    known = certificates()
    found = {name: directory / name for name in ("Authority", "Certificate", "Key")}
    known.authority.cert_pem.write_to_path(found["Authority"])
    known.client.cert_chain_pems[0].write_to_path(found["Certificate"])
    known.client.private_key_pem.write_to_path(found["Key"])
    return {f"tls{name}": str(file) for name, file in found.items()}


def cluster_with_tls(tmp_path: Path) -> Callable[[Callable[[str], Awaitable[None]]], None]:
    known = certificates()

    def run(told: Callable[[str], Awaitable[None]]) -> None:
        async def whole() -> None:
            tls = known.node_context(mutual=True)
            cluster = ClientCluster(tmp_path, "a", tls=tls, link_tls=known.client_context())
            async with cluster.running():
                await cluster.create(SHARD)
                await told(cluster.addresses_url)

        asyncio.run(whole())

    return run


@pytest.mark.parametrize("by_environment", [False, True])
def test_B10_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool):
    given = files(tmp_path)
    if by_environment:
        for name, file in given.items():
            monkeypatch.setenv(f"SHARDLOG_TLS_{name.removeprefix('tls').upper()}", file)
        given = {}

    @cluster_with_tls(tmp_path / "nodes")
    async def _(url: str) -> None:
        options = read_options({**LIVE, "shardlog.bootstrap.servers": url, **given})
        writer = await asyncio.to_thread(ShardlogWriter.to, options, VALUES, False)
        rows = pa.RecordBatch.from_pydict({"value": [b"one", b"two"]})
        assert await writer.append_partition(0, iter([rows])) == 2
        found = await asyncio.to_thread(read, ShardlogReader(options))
        assert [value for _, value in found] == [b"one", b"two"]


def test_B10_without_them_nothing_is_said(tmp_path: Path):
    @cluster_with_tls(tmp_path)
    async def _(url: str) -> None:
        given = {**LIVE, "shardlog.bootstrap.servers": url, "timeoutMs": "500"}
        with pytest.raises(SparkFailure):
            await asyncio.to_thread(ShardlogReader(read_options(given)).partitions)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tlsKey": "x"}, "'tlsCertificate' and 'tlsKey' go together"),
        ({"tlsName": "x"}, "'tlsAuthority' is needed"),
        ({"tlsCertificate": "x", "tlsKey": "y"}, "'tlsAuthority' is needed"),
    ],
)
def test_what_makes_no_sense(given: dict[str, Any], told: str):
    with pytest.raises(BadOption, match=told):
        read_options({**LIVE, **given})


def test_files_that_are_not_there_or_no_certificates(tmp_path: Path):
    options = read_options({**LIVE, "tlsAuthority": "/no/such"})
    assert options.tls == TlsFiles("/no/such")
    with pytest.raises(BadOption, match="/no/such: No such file or directory"):
        ShardlogReader(options).partitions()
    file = tmp_path / "file"
    file.write_text("nothing")
    options = read_options({**LIVE, "tlsAuthority": str(file)})
    with pytest.raises(BadOption, match=f"{re.escape(str(file))}: no certificate"):
        ShardlogReader(options).partitions()
