"""`shardlog bench` against a cluster of real processes."""

from collections.abc import Iterator

import pytest
import yaml
from local.commands import LocalCluster, local_cluster

from shardlog.cli import exit_codes
from shardlog.cli.bench_load import Budget, Load, percentiles


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.run("local up")
        cluster.run("shard create measured")
        yield cluster


def count(cluster: LocalCluster) -> int:
    return len(cluster.read("measured"))


def test_appends_as_many_as_asked_for(cluster: LocalCluster):
    before = count(cluster)
    found = cluster.json("bench append measured --records 5000 --producers 3 --record-bytes 10")
    assert found["shard"] == "measured"
    assert (found["records"], found["bytes"]) == (5000, 50_000)
    assert found["records_per_s"] > 0
    assert found["latency_ms"]["p50"] <= found["latency_ms"]["max"]
    assert count(cluster) == before + 5000 + 3
    assert {len(each) for each in cluster.read("measured")[before:]} == {10}


def test_appends_at_a_rate(cluster: LocalCluster):
    found = cluster.json("bench append measured --records 200 --rate 2000 --producers 2")
    assert found["records"] == 200
    assert found["calls"] > 2, "they do not come all at once"


def test_appends_one_by_one(cluster: LocalCluster):
    before = count(cluster)
    found = cluster.json("bench latency measured --records 20 --producers 2")
    assert (found["records"], found["calls"]) == (20, 20)
    assert count(cluster) == before + 20 + 2


def test_reads_what_there_is(cluster: LocalCluster):
    cluster.run("bench append measured --records 100")
    there = count(cluster)
    found = cluster.json("bench read measured --readers 2")
    assert found["records"] == 2 * there
    assert found["latency_ms"] is None


def test_a_temporary_shard_is_gone_afterwards(cluster: LocalCluster):
    shards = cluster.json("shard list")
    table = cluster.run("bench append --seconds 0.2").stdout
    heading, row = table.splitlines()
    assert heading.split()[:2] == ["RECORDS", "SECONDS"]
    assert int(row.split()[0]) > 0
    found = yaml.safe_load(cluster.run("bench read --records 3000 -o yaml").stdout)
    assert found["records"] == 3000 + 1, "with the one that goes ahead"
    assert found["shard"].startswith("bench-")
    assert cluster.json("shard list") == shards


def test_failures_are_one_line(cluster: LocalCluster):
    refused = exit_codes.REFUSED
    assert "no shard 'absent'" in cluster.refused("bench append absent --records 1", refused)
    assert "no shard 'absent'" in cluster.refused("bench read absent", refused)
    nodes = "--cluster shardlog://127.0.0.1:1"
    assert "SHARD must be given" in cluster.refused(f"bench latency {nodes}", exit_codes.USAGE)
    unreachable = cluster.refused(
        f"bench latency measured {nodes} --timeout 0.2", exit_codes.UNAVAILABLE
    )
    assert "not done in 200 ms" in unreachable


@pytest.mark.parametrize(
    "arguments",
    ["append --records 0", "append --rate 0", "read --readers 0", "latency --seconds 0"],
)
def test_bad_arguments_are_usage_errors(cluster: LocalCluster, arguments: str):
    cluster.run(f"bench {arguments}", exit_codes.USAGE)


def test_a_budget_ends_with_its_records():
    budget = Budget(Load(records=10, seconds=None, record_bytes=1, workers=1), 0.0)
    assert [budget.take(4) for _ in range(4)] == [4, 4, 2, 0]


def test_a_budget_ends_with_its_time():
    budget = Budget(Load(records=None, seconds=1.0, record_bytes=1, workers=1), float("-inf"))
    assert budget.take(1) == 0
    assert Budget(Load(None, 1.0, 1, 1), float("inf")).take(5) == 5


def test_percentiles_are_of_the_nearest_rank():
    found = percentiles([float(each) for each in range(1000)])
    assert found == {"p50": 500.0, "p90": 900.0, "p99": 990.0, "p99.9": 999.0, "max": 999.0}
    assert percentiles([]) is None
    assert percentiles([7.0]) == dict.fromkeys(["p50", "p90", "p99", "p99.9", "max"], 7.0)


def test_a_call_hands_over_a_batch_at_most():
    assert Load(None, None, record_bytes=128, workers=1).call_records() == 1000
    assert Load(None, None, record_bytes=1000, workers=1, batch_bytes=4096).call_records() == 4
    assert Load(None, None, record_bytes=1 << 20, workers=1, batch_bytes=4096).call_records() == 1
