"""What a node shows of itself: figures, events, and times of syncs."""

import asyncio
import json
import logging
import re
import socket
import threading
from functools import partial

import pytest
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from transport.documents import DOCS, table

from node.shell import Cluster, append, node, until
from shardlog.process import logs
from shardlog_node.observing import SyncTimes, TimedFiles


def test_figures_of_a_shard_and_of_the_node(tmp_path):
    async def story():
        cluster = Cluster(tmp_path, "a", "b", "c")
        async with cluster.running():
            leader = await cluster.create("orders")
            follower = next(name for name in cluster.names if name != leader)
            async with cluster.client(leader, "orders") as client:
                await append(client, 20)
                await asyncio.to_thread(_leader_shows, cluster.nodes[leader], follower)
            async with cluster.client(follower, "orders") as client:
                with pytest.raises(AssertionError, match="NotLeader"):
                    await append(client, 1)
            await asyncio.to_thread(_follower_shows, cluster.nodes[follower])

    asyncio.run(story())


def _leader_shows(leader, follower):
    until(lambda: leader.metrics()["shardlog_follower_lag_records", "orders", follower] == 0)
    found = leader.metrics()
    assert found["shardlog_replica_role", "orders", "LEADER"] == 1
    assert found["shardlog_replica_role", "orders", "FOLLOWER"] == 0
    assert found["shardlog_replica_epoch", "orders"] >= 1
    assert found["shardlog_log_end_offset", "orders"] >= 20
    assert found["shardlog_commit_offset", "orders"] == found["shardlog_log_end_offset", "orders"]
    assert found["shardlog_replica_sessions", "orders"] == 1
    assert 0 < found["shardlog_log_bytes", "orders"] < found["shardlog_segment_bytes", "orders"]
    assert found["shardlog_sync_seconds_count",] >= 20
    assert found["shardlog_sync_seconds_bucket", "+Inf"] == found["shardlog_sync_seconds_count",]
    assert found["shardlog_connections",] >= 1
    assert found["shardlog_inflight_bytes",] == 0
    assert found["shardlog_inflight_bytes_max",] == 64 << 20
    assert found["shardlog_replicas",] == 1
    assert found["shardlog_replicas_failed",] == 0
    assert found["shardlog_clock_agreed",] == 1
    assert found["process_resident_memory_bytes",] > 0
    until(lambda: leader.metrics()["shardlog_clock_sources",] == 3, "both followers' clocks")


def _follower_shows(follower):
    found = follower.metrics()
    assert found["shardlog_replica_role", "orders", "FOLLOWER"] == 1
    assert found["shardlog_refusals_total", "NotLeader"] == 1
    assert not [key for key in found if key[0] == "shardlog_follower_lag_records"]
    until(lambda: follower.metrics()["shardlog_clock_sources",] >= 2, "the leader's clock")


def test_changes_of_role_and_epoch_are_told(tmp_path):
    async def story():
        cluster = Cluster(tmp_path, "a", "b", "c")
        async with cluster.running():
            leader = await cluster.create("orders")
            for each in cluster.nodes.values():  # a change is told of what was there before
                await asyncio.to_thread(until, partial(each.told, "replica opened"))
            cluster.nodes[leader].end()
            second = cluster.nodes[await cluster.leader("orders", other_than=leader)]
            await asyncio.to_thread(until, lambda: _leads(second))
            (event, *_) = [each for each in second.told("role") if each["role"] == "LEADER"]
            assert event["shard"] == "orders"
            assert event["epoch"] >= 2
            assert event["leader"] == second.name
            assert second.metrics()["shardlog_role_changes_total",] >= 1
            assert second.metrics()["shardlog_epochs_total",] >= 1

    asyncio.run(story())


def _leads(running):
    return any(each["role"] == "LEADER" for each in running.told("role"))


def test_the_document_tells_of_every_figure(tmp_path):
    with node(tmp_path / "volume", "node-1") as running:
        families = text_string_to_metric_families(running.get("/metrics")[1])
    told = table((DOCS / "node.md").read_text(), "Metrics")
    assert {row["metric"].strip("`"): row["meaning"] for row in told} == {
        family.name + ("_total" if family.type == "counter" else ""): family.documentation
        for family in families
        if family.name.startswith("shardlog_")
    }


def test_connections_that_are_no_shardlog_are_counted_and_told(tmp_path):
    with node(tmp_path / "volume", "node-1") as running:
        host, _, port = running.ready["data"].rpartition(":")
        for _ in range(3):
            with socket.create_connection((host, int(port))) as other:
                other.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while other.recv(1000):
                    pass
        until(lambda: running.metrics()["shardlog_refused_connections_total",] == 3)


# --- syncs ---------------------------------------------------------------------------------------


def test_a_sync_is_timed_while_it_lasts_and_afterwards(tmp_path):
    registry = CollectorRegistry()
    times = SyncTimes(registry)
    began, go_on = threading.Event(), threading.Event()

    def sync() -> None:
        began.set()
        go_on.wait()

    assert times.longest_ms() == 0
    thread = threading.Thread(target=times.timed, args=(sync,))
    thread.start()
    began.wait()
    until(lambda: times.longest_ms() > 0)
    go_on.set()
    thread.join()
    assert times.longest_ms() == 0
    assert registry.get_sample_value("shardlog_sync_seconds_count") == 1


def test_a_sync_that_fails_is_timed_too():
    registry = CollectorRegistry()
    times = SyncTimes(registry)

    def sync() -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - the one above
        times.timed(sync)
    assert times.longest_ms() == 0
    assert registry.get_sample_value("shardlog_sync_seconds_count") == 1


def test_files_and_volumes_are_timed(tmp_path):
    registry = CollectorRegistry()
    files = TimedFiles(SyncTimes(registry))
    path = str(tmp_path / "file")
    created = files.create(path)
    created.write(0, [b"bytes"])
    created.sync()
    created.close()
    opened = files.open(path)
    assert opened.read(0, 5) == b"bytes"
    opened.sync()
    opened.close()
    whole = files.open_volume(str(tmp_path))
    if whole is not None:
        whole.sync()
        whole.close()
    expected = 2 + (whole is not None)
    assert registry.get_sample_value("shardlog_sync_seconds_count") == expected


# --- logs ----------------------------------------------------------------------------------------


@pytest.fixture
def written(capsys):
    """The lines on standard error; the process's logging is put back afterwards."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]

    def lines() -> list[str]:
        found: list[str] = capsys.readouterr().err.splitlines()
        return found

    yield lines
    structlog.reset_defaults()
    logging.captureWarnings(False)
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def test_events_are_lines_of_json_whoever_logs_them(written):
    logs.configure("info", "auto")
    logs.logger_of("node", node="a").info("role", shard="orders", epoch=3)
    logging.getLogger("elsewhere").warning("it took %d ms", 5)
    ours, other = map(json.loads, written())
    assert (ours["event"], ours["shard"], ours["epoch"], ours["node"]) == ("role", "orders", 3, "a")
    assert (ours["level"], ours["logger"]) == ("info", "shardlog.node")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", ours["timestamp"])
    assert (other["event"], other["level"], other["logger"]) == (
        "it took 5 ms",
        "warning",
        "elsewhere",
    )


def test_exceptions_stay_on_one_line(written):
    logs.configure("info", "json")
    try:
        raise ValueError("what happened")
    except ValueError:
        logging.getLogger("elsewhere").exception("failed")
    (line,) = written()
    assert "ValueError: what happened" in json.loads(line)["exception"]


def test_for_the_eye(written):
    logs.configure("info", "console")
    logs.logger_of("node").info("role", shard="orders")
    (line,) = written()
    assert "role" in line
    assert "shard=orders" in line


def test_levels(written):
    logs.configure("warning", "json")
    logs.logger_of("node").info("not told")
    logging.getLogger("elsewhere").info("not told")
    logs.logger_of("node").warning("told")
    assert len(written()) == 1
