"""The life of a node process: starts that fail, readiness, signals, handing over."""

import asyncio
import os
import signal
import socket

import pytest

from node.shell import ANY_PORT, Cluster, clean_environment, node, refused, until
from shardlog import __version__
from shardlog.cli import exit_codes
from shardlog.process.ends import Exit
from shardlog.transport.cluster_key import HOW_TO_MAKE_ONE

PLAIN = ("--name", "node-1", "--plain", *ANY_PORT)


def test_exit_statuses_are_those_of_the_command():
    known = {name: getattr(exit_codes, name) for name in dir(exit_codes) if name.isupper()}
    assert {each.name: each.value for each in Exit}.items() <= known.items()


# --- starts --------------------------------------------------------------------------------------


def test_a_ready_node_says_where_it_listens(tmp_path):
    with node(tmp_path / "volume", "node-1") as running:
        assert running.ready["event"] == "ready"
        assert running.ready["node"] == "node-1"
        assert running.ready["version"] == __version__
        for plane in ("data", "control", "http"):
            host, _, port = running.ready[plane].rpartition(":")
            socket.create_connection((host, int(port))).close()
        assert running.get("/healthz") == (200, '{"alive": true}')
        assert running.get("/readyz")[0] == 200
        assert running.readiness() == {
            "ready": True,
            "name": "node-1",
            "listening": True,
            "draining": False,
            "replicas": 0,
            "failed": {},
        }
        assert running.get("/elsewhere")[0] == 404


def one_line(told: str) -> str:
    assert told.startswith("shardlog-node: ")
    assert told.count("\n") == 1
    return told.removeprefix("shardlog-node: ").rstrip()


def test_settings_that_do_not_fit():
    status, told = refused("--name", "node-1")
    assert status == Exit.USAGE
    assert one_line(told).startswith("directory: needed")


def test_S03_a_node_needs_the_key_of_its_cluster(tmp_path):
    volume = ("--directory", str(tmp_path / "volume"))
    missing = tmp_path / "none"
    status, told = refused(*PLAIN, *volume, "--cluster-key-file", str(missing))
    assert status == Exit.USAGE
    assert one_line(told) == f"cluster_key_file: {missing}: No such file or directory"
    bare = {name: it for name, it in clean_environment().items() if "CLUSTER_KEY" not in name}
    status, told = refused(*PLAIN, *volume, environment=bare)
    assert status == Exit.USAGE
    assert one_line(told) == f"cluster_key_file is needed; make one with: {HOW_TO_MAKE_ONE}"
    path = tmp_path / "cluster.key"
    path.write_text("x")
    path.chmod(0o644)
    status, told = refused(*PLAIN, *volume, "--cluster-key-file", str(path))
    assert status == Exit.USAGE
    assert one_line(told).endswith(f"others may use it (mode 0644); chmod 600 {path}")
    assert not (tmp_path / "volume").exists()


def test_a_directory_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.touch()
    for directory in (path, path / "volume"):
        status, told = refused(*PLAIN, "--directory", str(directory))
        assert (status, one_line(told)) == (Exit.USAGE, f"directory: {path}: not a directory")


def test_a_directory_where_nobody_may_write(tmp_path):
    locked = "/sys"  # not even root may
    if os.geteuid():
        tmp_path.chmod(0o500)
        locked = str(tmp_path)
    status, told = refused(*PLAIN, "--directory", f"{locked}/volume")
    assert status == Exit.USAGE
    assert locked in one_line(told)


def test_a_volume_that_another_process_uses(tmp_path):
    with node(tmp_path / "volume", "node-1"):
        status, told = refused(*PLAIN, "--directory", str(tmp_path / "volume"))
    assert status == Exit.UNAVAILABLE
    assert one_line(told) == f"{tmp_path}/volume: another process uses this volume"


@pytest.mark.parametrize("plane", ["data", "control", "http"])
def test_a_port_that_is_taken(tmp_path, plane):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        flags = (f"--{plane}-port", port)
        status, told = refused(*PLAIN, "--directory", str(tmp_path / "volume"), *flags)
    assert status == Exit.UNAVAILABLE
    assert one_line(told).startswith(f"{plane}_port: 127.0.0.1:{port}: ")


def test_certificates_that_are_none(tmp_path):
    path = tmp_path / "nothing.pem"
    path.touch()
    flags = [f"--tls-{part}={path}" for part in ("authority", "certificate", "key")]
    status, told = refused("--name", "node-1", "--directory", str(tmp_path / "volume"), *flags)
    assert status == Exit.USAGE
    assert one_line(told) == f"tls_authority: {path}: no certificate or crl found"


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it(tmp_path, number):
    with node(tmp_path / "volume", "node-1") as running:
        running.signal(number)
        assert running.ended() == Exit.OK
        assert [each["event"] for each in running.events()] == ["stopping", "drained", "stopped"]
    with node(tmp_path / "volume", "node-1") as again:
        assert again.get("/readyz")[0] == 200


def test_leadership_is_handed_over_before_a_stop(tmp_path):
    async def story():
        cluster = Cluster(tmp_path, "a", "b", "c", arguments=("--stop-timeout-ms", "50000"))
        async with cluster.running():
            leader = await cluster.create("orders")
            stopping = cluster.nodes[leader]
            stopping.signal()
            assert await asyncio.to_thread(stopping.ended) == Exit.OK
            (drained,) = stopping.told("drained")
            assert drained["still_led"] == []
            assert await cluster.leader("orders", other_than=leader)

    asyncio.run(story())


def test_without_a_coordinator_a_second_signal_ends_the_waiting(tmp_path):
    async def story():
        cluster = Cluster(tmp_path, "a", "b", "c", arguments=("--stop-timeout-ms", "3600000"))
        async with cluster.running():
            leader = cluster.nodes[await cluster.create("orders")]
            await cluster.stop_coordinator()
            leader.signal()
            await asyncio.to_thread(until, lambda: leader.readiness()["draining"])
            assert leader.get("/readyz")[0] == 503
            assert leader.get("/healthz")[0] == 200
            leader.signal()
            assert await asyncio.to_thread(leader.ended) == Exit.OK
            (drained,) = leader.told("drained")
            assert drained["still_led"] == ["orders"]

    asyncio.run(story())


def test_who_leads_alone_has_nobody_to_wait_for(tmp_path):
    async def story():
        cluster = Cluster(tmp_path, "a", arguments=("--stop-timeout-ms", "3600000"))
        async with cluster.running():
            leader = cluster.nodes[await cluster.create("orders")]
            leader.signal()
            assert await asyncio.to_thread(leader.ended) == Exit.OK

    asyncio.run(story())


# --- replicas ------------------------------------------------------------------------------------


def test_a_replica_that_cannot_run_is_named_and_the_others_run(tmp_path):
    async def story():
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            await cluster.create("orders")
            await cluster.create("payments")
            await cluster.stop_coordinator()
            cluster.nodes["a"].end()
            for path in (tmp_path / "a" / "orders").iterdir():
                path.write_bytes(bytes(path.stat().st_size))
            cluster.start("a")
            again = cluster.nodes["a"]
            assert again.get("/readyz")[0] == 200
            failed = again.readiness()["failed"]
            assert list(failed) == ["orders"]
            assert str(tmp_path / "a" / "orders") in failed["orders"]
            until(lambda: again.told("replica stopped"))
            (event, *_) = again.told("replica stopped")
            assert (event["shard"], event["why"]) == ("orders", failed["orders"])
            assert again.metrics()["shardlog_replicas_failed",] == 1

    asyncio.run(story())
