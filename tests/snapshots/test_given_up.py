"""Records that were given up by command: snapshots are taken around them, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from local import test_accept_loss as losing
from local.commands import LocalCluster

from shardlog.local.cluster_file import load
from shardlog_spark.failures import DataLost
from shardlog_spark.options import read_options
from shardlog_spark.reading import ShardlogReader

pytestmark = pytest.mark.xdist_group("local clusters")
cluster = losing.cluster


def values(options: dict[str, str]) -> list[bytes]:
    reader = ShardlogReader(read_options({"subscribe": "orders", **options}))
    return [
        value
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for value in batch["value"].to_pylist()
    ]


def test_a_loss_is_told_by_every_step(cluster: LocalCluster, tmp_path: Path):
    cluster.run("local down")
    assert losing.damage(cluster) == 3
    cluster.run("local up")
    entry = losing.status(cluster, lambda it: it["waiting"] and it["waiting"]["entry"])["waiting"][
        "entry"
    ]
    cluster.run(f"ops accept-loss orders --entry {entry['epoch']}:{entry['offset']} --yes")
    losing.status(cluster, lambda it: it["losses"] and it["status"] == "STEADY" and it["leader"])

    place = f"file://{tmp_path}/snapshots"
    lost = [{"first": entry["offset"], "end": entry["offset"] + 1}]
    made = cluster.json(f"snapshot create orders {place}")
    assert made["given_up"] == lost
    found = cluster.json(f"snapshot verify orders {place}")
    assert (found["damaged"], found["given_up"]) == ([], lost)
    told = cluster.run(f"snapshot verify orders {place}").stderr
    assert f"offsets [{entry['offset']}, {entry['offset'] + 1}) were given up" in told
    assert cluster.json(f"snapshot restore copy {place} --from orders")["given_up"] == 1
    around = losing.BEFORE + losing.BEHIND
    assert cluster.read("copy") == around

    live = {"shardlog.bootstrap.servers": load(cluster.layout).url}
    for options in ({"path": place}, live):
        with pytest.raises(DataLost, match="were given up, and nobody has them"):
            values(options)
        assert values({**options, "failOnDataLoss": "false"}) == around
