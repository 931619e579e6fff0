"""The same entry damaged in the files of every node: nothing but people's word helps, told by hand.

Real processes and real files; damage is dealt while they are down.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.commands import TIMEOUT_S, LocalCluster, local_cluster
from shardlog.cli import exit_codes
from shardlog.client.blocking import Client
from shardlog.client.failures import EntryLost
from shardlog.local.cluster_file import load

pytestmark = pytest.mark.xdist_group("local clusters")

BEFORE = [b"before %d" % number for number in range(20)]
DAMAGED = b"this one is damaged on every disk"
BEHIND = [b"behind %d" % number for number in range(20)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path) as cluster:
        cluster.run("local up")
        cluster.run("shard create orders")
        for records in (BEFORE, [DAMAGED], BEHIND):
            cluster.append("orders", records)
        yield cluster


def damage(cluster: LocalCluster) -> int:
    """Flip a bit of the record in every file that has it: in how many."""
    struck = 0
    for path in (cluster.layout.directory / "nodes").rglob("*.segment"):
        data = bytearray(path.read_bytes())
        at = data.find(DAMAGED)
        if at >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            struck += 1
    return struck


def status(cluster: LocalCluster, wanted: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found = cluster.json("status orders")
        if wanted(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"not as wanted: {json.dumps(found)}")


def is_bad_everywhere(found: Any) -> bool:
    """As soon as all have looked; the first one who does waits for the others only."""
    waiting, ensemble = found["waiting"], found["ensemble"]
    bad = [each for each in found["reports"] if each["bad"]]
    return waiting and len(bad) == 3 and sorted(waiting["nodes"]) == sorted(ensemble)


def test_T3_an_entry_that_is_bad_everywhere_is_given_up_by_command(cluster: LocalCluster):
    cluster.run("local down")
    assert damage(cluster) == 3
    cluster.run("local up")
    found = status(cluster, is_bad_everywhere)
    entry = found["waiting"]["entry"]
    name = f"{entry['epoch']}:{entry['offset']}"
    assert name in cluster.run("shard get orders").output
    assert "damaged" in cluster.run("status orders").output
    told = cluster.refused("ops accept-loss orders --entry 1:0 --yes", exit_codes.REFUSED)
    assert f"({entry['epoch']},{entry['offset']})" in told
    asks = f"ops accept-loss orders --entry {name}"
    assert "--yes" in cluster.refused(asks, exit_codes.USAGE)
    cluster.answered(asks, "n", exit_codes.INTERRUPTED)
    cluster.run(f"ops accept-loss orders --entry {name} --yes")

    found = status(cluster, lambda it: it["losses"] and it["status"] == "STEADY" and it["leader"])
    (lost,) = found["losses"]
    assert (lost["epoch"], lost["first"]) == (entry["epoch"], entry["offset"])
    assert "given up" in cluster.run("status orders").output
    with Client(load(cluster.layout).url) as client:
        records = client.read("orders")
        assert [next(records).value for _ in BEFORE] == BEFORE
        with pytest.raises(EntryLost) as failure:
            next(records)
        assert (failure.value.first, failure.value.next) == (lost["first"], lost["end"])
        rest = [record.value for record in client.read("orders", failure.value.next)]
    assert rest == BEHIND
    cluster.append("orders", [b"and on it goes"])
    logs = (cluster.layout.directory / "logs").glob("*.log")
    assert any("given up" in path.read_text() for path in logs)
    leader_log = cluster.layout.log(found["leader"])
    status(cluster, lambda it: "loss accepted" in leader_log.read_text())
