"""One cluster of real processes, through everything that a person does with it.

The tests share the cluster; each leaves it whole, and those that need more nodes add them.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.commands import SHARDLOG, TIMEOUT_S, LocalCluster, local_cluster
from shardlog.cli import exit_codes
from shardlog.client.blocking import Client
from shardlog.local.cluster_file import load

pytestmark = pytest.mark.xdist_group("local clusters")
RECORDS = [b"record %d" % number for number in range(100)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.run("local up")
        cluster.run("shard create orders")
        cluster.append("orders", RECORDS)
        yield cluster


def leader(cluster: LocalCluster, other_than: str | None = None) -> str:
    found = cluster.until(
        "orders",
        lambda it: it["status"] == "STEADY" and it["leader"] not in (None, other_than),
    )
    return str(found["leader"])


def test_up_again_changes_nothing(cluster: LocalCluster):
    before = cluster.pids()
    assert "3 nodes and the coordinator serve" in cluster.run("local up").stdout
    assert cluster.pids() == before


def test_every_process_is_shown(cluster: LocalCluster):
    found = cluster.json("local status")
    assert {each["name"]: each["state"] for each in found["processes"]} == dict.fromkeys(
        ["supervisor", "coordinator", "node-1", "node-2", "node-3"], "running"
    )
    assert yaml.safe_load(cluster.run("local status -o yaml").stdout)["url"] == found["url"]
    table = cluster.run("local status").stdout
    assert len(table.splitlines()) == 2 + 5
    assert "127.0.0.1:" in cluster.run("local status -o wide").stdout


def test_shards_are_shown_in_every_format(cluster: LocalCluster):
    (found,) = cluster.json("shard list")["shards"]
    assert found == cluster.shard("orders")
    assert yaml.safe_load(cluster.run("shard get orders -o yaml").stdout) == found
    assert set(found["ensemble"]) == set(found["addresses"])
    heading, row = cluster.run("shard list").stdout.splitlines()
    assert heading.split() == ["NAME", "STATUS", "LEADER", "EPOCH", "REPLICAS"]
    assert row.split()[:2] == ["orders", "STEADY"]
    assert ",".join(found["ensemble"]) in cluster.run("shard list -o wide").stdout


def test_N11_status_shows_epoch_history_cursors_and_lag(cluster: LocalCluster):
    found = cluster.json("status orders")
    reports = {each["node"]: each for each in found["reports"]}
    assert set(reports) == set(found["ensemble"])
    leading = reports[found["leader"]]
    assert leading["serving"]
    assert leading["lag"] == 0
    assert leading["history"][0] == [1, 0]
    assert leading["commit"] > len(RECORDS)
    assert {each["node"] for each in leading["cursors"]} == set(reports) - {found["leader"]}
    shown = cluster.run("status orders -o wide").stdout
    assert f"cursors of {found['leader']}" in shown
    assert "1@0" in shown


def test_T3_status_shows_damage_repairs_and_the_scrubber(cluster: LocalCluster):
    def column(name: str) -> dict[str, Any]:
        return {each["node"]: each[name] for each in cluster.json("status orders")["reports"]}

    def until(wanted: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not wanted():
            assert time.monotonic() < deadline, what

    until(lambda: min(column("scrub_rounds").values()) >= 1, "the scrubber never comes round")
    none = dict.fromkeys(cluster.shard("orders")["ensemble"], 0)
    assert (column("bad"), column("repaired")) == (none, none)
    follower = next(node for node in none if node != cluster.shard("orders")["leader"])
    segment = damage(cluster.layout.volume(follower))
    until(lambda: column("repaired") == none | {follower: 1}, "nothing is written anew")
    assert column("bad") == none
    assert column("awaited") == dict.fromkeys(none)
    until(lambda: RECORDS[50] in segment.read_bytes(), "it is not written into the file")
    until(
        lambda: "damage found" in cluster.run(f"local logs {follower}").stdout,
        "what was found is not in the log",
    )
    shown = cluster.run("status orders -o wide").stdout
    assert ["repaired", "1", "on", follower] in [line.split() for line in shown.splitlines()]
    assert "REPAIRED" in shown
    assert "rounds, at" in shown


def damage(volume: Path) -> Path:
    """One bit of a record, in a file that is in use."""
    for segment in volume.rglob("*.segment"):
        at = segment.read_bytes().find(RECORDS[50])
        if at >= 0:
            with segment.open("r+b") as file:
                file.seek(at)
                file.write(bytes([RECORDS[50][0] ^ 1]))
            return segment
    raise AssertionError(f"no record in {volume}")


def test_the_overview_shows_nodes_and_shards(cluster: LocalCluster):
    found = cluster.json("status")
    assert [node["alive"] for node in found["nodes"]] == [True] * 3
    assert [each["name"] for each in found["shards"]] == ["orders"]
    shown = cluster.run("status").stdout
    assert "node-3" in shown
    assert "orders" in shown


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("shard get absent", exit_codes.REFUSED, "no shard absent"),
        ("status absent", exit_codes.REFUSED, "no shard absent"),
        ("shard scale absent --replicas 3", exit_codes.REFUSED, "no shard absent"),
        ("shard delete absent --yes", exit_codes.REFUSED, "no shard absent"),
        ("ops promote absent node-1", exit_codes.REFUSED, "no shard absent"),
        ("shard create orders", exit_codes.REFUSED, "orders exists"),
        ("shard create wide --replicas 5", exit_codes.REFUSED, "5 nodes, there are 3"),
        ("shard create unsafe --quorum-replication 1", exit_codes.REFUSED, "more than 3"),
        ("shard create Orders", exit_codes.USAGE, "no name of a shard"),
        ("shard create ../../etc", exit_codes.USAGE, "no name of a shard"),
        ("shard create here --node node-9", exit_codes.USAGE, "no node 'node-9'"),
        ("shard scale orders --replicas 0", exit_codes.USAGE, "0 replicas"),
        ("shard scale orders --replicas 9", exit_codes.REFUSED, "9 nodes, there are 3"),
        ("ops promote orders node-4", exit_codes.REFUSED, "not a member"),
        ("ops swap orders node-4 node-1", exit_codes.REFUSED, "not a member"),
        ("ops swap orders node-1 node-2", exit_codes.REFUSED, "already hosts"),
        ("ops swap orders node-1 node-9", exit_codes.USAGE, "no node 'node-9'"),
        ("ops abort orders", exit_codes.REFUSED, "no reconfiguration"),
        ("local kill node-9", exit_codes.USAGE, "no node-9 here"),
        ("local logs node-9", exit_codes.USAGE, "no node-9 here"),
        ("local up --nodes 2", exit_codes.USAGE, "does not shrink"),
        ("local up --new-ports", exit_codes.USAGE, "while the cluster runs"),
        ("shard list --cluster shardlog://h:1", exit_codes.USAGE, "begins with http://"),
        ("shard list --cluster http://127.0.0.1:1", exit_codes.UNAVAILABLE, "no answer from"),
    ],
)
def test_refusals_are_one_line_and_an_exit_code(
    cluster: LocalCluster, line: str, code: int, said: str
):
    told = cluster.refused(line, code)
    assert told.startswith("shardlog: ")
    assert said in told


def test_names_complete(cluster: LocalCluster):
    shell = {
        "_SHARDLOG_COMPLETE": "bash_complete",
        "COMP_WORDS": "shardlog shard get o",
        "COMP_CWORD": "3",
    }
    environment = cluster.environment | shell
    done = subprocess.run([SHARDLOG], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["plain,orders"]


def test_logs_are_shown(cluster: LocalCluster):
    assert "ready" in cluster.run("local logs node-1").stdout
    assert "orders: STEADY, epoch 1" in cluster.run("local logs coordinator").stdout
    everything = cluster.run("local logs -n 3").stdout
    assert {line.split()[0] for line in everything.splitlines()} >= {"supervisor", "node-2"}


def test_deleting_asks_first(cluster: LocalCluster):
    cluster.run("shard create events --replicas 1")
    assert "--yes" in cluster.refused("shard delete events", exit_codes.USAGE)
    cluster.answered("shard delete events", "n", exit_codes.INTERRUPTED)
    assert cluster.shard("events")["status"] == "STEADY"
    cluster.answered("shard delete events", "y")
    assert [each["name"] for each in cluster.json("shard list")["shards"]] == ["orders"]


def test_S10_a_trim_asks_first_and_ends_within_the_log(cluster: LocalCluster):
    cluster.run("shard create short --replicas 1")
    cluster.append("short", [b"1"] * 10)
    cluster.append("short", [b"2"] * 10)
    everything = cluster.read("short")
    with Client(load(cluster.layout).url) as client:
        begin, end = client.first("short"), client.end("short")
    middle = end - 10
    assert "1000000 is beyond" in cluster.refused(
        "ops trim short 1000000 --yes", exit_codes.REFUSED
    )
    assert "--yes" in cluster.refused(f"ops trim short {middle}", exit_codes.USAGE)
    told = cluster.answered(f"ops trim short {middle}", "n", exit_codes.INTERRUPTED)
    assert f"up to {middle - begin} records of short" in told
    assert cluster.read("short") == everything
    assert f"{middle - begin} at most" in cluster.run(f"ops trim short {middle} --yes").stdout
    with Client(load(cluster.layout).url) as client:
        while client.first("short") == begin:
            time.sleep(0.02)
        kept = client.read("short", client.first("short"))
        assert [record.value for record in kept] == [b"2"] * 10
    assert "there is no shard" in cluster.refused("ops trim none 1 --yes", exit_codes.REFUSED)
    assert "short: records below" in cluster.run("local logs coordinator").stdout
    cluster.run("shard delete short --yes")


def test_O8_leadership_is_handed_over(cluster: LocalCluster):
    found = cluster.shard("orders")
    other = next(node for node in found["ensemble"] if node != found["leader"])
    assert f"{other} leads orders" in cluster.run(f"ops promote orders {other}").stdout
    assert cluster.shard("orders")["leader"] == other


def test_a_killed_leader_is_replaced_and_comes_back(cluster: LocalCluster):
    before = leader(cluster)
    pid = cluster.pid(before)
    cluster.run(f"local kill {before}")
    leader(cluster, other_than=before)
    cluster.run("local up")
    assert cluster.pid(before) not in (None, pid)
    assert cluster.read("orders") == RECORDS


def test_a_paused_leader_is_replaced(cluster: LocalCluster):
    before = leader(cluster)
    cluster.run(f"local pause {before}")
    states = cluster.run("local status -o json", exit_codes.UNAVAILABLE).stdout
    assert '"paused"' in states
    leader(cluster, other_than=before)
    cluster.run(f"local resume {before}")
    cluster.run("local up")
    assert cluster.read("orders") == RECORDS


def test_a_killed_supervisor_takes_nobody_with_it(cluster: LocalCluster):
    before = cluster.pids()
    cluster.run("local kill supervisor")
    cluster.run("local up")
    assert cluster.pids() == before
    cluster.run("local kill node-1")
    cluster.run("local up")
    assert cluster.pid("node-1") not in (None, before["node-1"])


def test_everything_is_killed_and_nothing_is_lost(cluster: LocalCluster):
    for name in ("supervisor", *cluster.pids()):
        cluster.run(f"local kill {name}")
    assert set(cluster.pids().values()) == {None}
    assert "no answer" in cluster.refused("shard list", exit_codes.UNAVAILABLE)
    cluster.run("local up")
    leader(cluster)
    assert cluster.read("orders") == RECORDS


def test_down_and_up_again(cluster: LocalCluster):
    assert "is down" in cluster.run("local down").stdout
    assert set(cluster.pids().values()) == {None}
    cluster.run("local status", exit_codes.UNAVAILABLE)
    assert "is not running" in cluster.refused("local kill node-1", exit_codes.REFUSED)
    cluster.run("local down")
    cluster.run("local up")
    leader(cluster)
    assert cluster.read("orders") == RECORDS


def test_nodes_are_added_and_a_shard_is_scaled_up_and_down(cluster: LocalCluster):
    before = cluster.pids()
    cluster.run("local up --nodes 5")
    assert before.items() <= cluster.pids().items()
    scaled = cluster.run("shard scale orders --replicas 5 -o json")
    assert len(json.loads(scaled.stdout)["ensemble"]) == 5
    assert "expand" in scaled.stderr
    cluster.run("shard scale orders --replicas 3")
    assert len(cluster.shard("orders")["ensemble"]) == 3
    assert cluster.read("orders") == RECORDS


def test_a_killed_coordinator_goes_on_scaling(cluster: LocalCluster):
    cluster.run("local up --nodes 5")
    cluster.run("shard scale orders --replicas 5 --no-wait")
    refused = cluster.run("shard scale orders --replicas 4 --no-wait", exit_codes.REFUSED)
    assert "in progress" in refused.stderr
    cluster.run("local kill coordinator")
    cluster.run("local up")
    cluster.until("orders", lambda it: len(it["ensemble"]) == 5 and not it["reconfiguration"])
    cluster.run("shard scale orders --replicas 3")


def test_a_replica_is_moved(cluster: LocalCluster):
    cluster.run("local up --nodes 5")
    found = cluster.shard("orders")
    old = next(node for node in found["ensemble"] if node != found["leader"])
    new, *_ = sorted(set(cluster.pids()) - set(found["ensemble"]) - {"coordinator"})
    assert "done" in cluster.run(f"ops swap orders {old} {new}").stdout
    assert set(cluster.shard("orders")["ensemble"]) == {*found["ensemble"], new} - {old}
    assert cluster.read("orders") == RECORDS


def test_down_deletes_what_is_its_own(cluster: LocalCluster, tmp_path: Path):
    note = cluster.layout.directory / "note.txt"
    note.write_text("not of the cluster")
    cluster.answered("local down --delete", "n", exit_codes.INTERRUPTED)
    assert cluster.pid("node-1") is not None
    cluster.run("local down --delete --yes")
    assert list(cluster.layout.directory.iterdir()) == [note]
    assert "no cluster in" in cluster.refused("shard list", exit_codes.UNAVAILABLE)
    assert "no cluster in" in cluster.refused("local down", exit_codes.UNAVAILABLE)
