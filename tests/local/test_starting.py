"""What keeps a cluster from coming up, and who else may be at it."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.commands import SHARDLOG, LocalCluster, local_cluster
from shardlog.cli import exit_codes
from shardlog.local import programs
from shardlog.local.cluster_file import HOST, load, new_cluster, port_of, save

pytestmark = pytest.mark.xdist_group("local clusters")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path / "cluster") as cluster:
        yield cluster


def begin(cluster: LocalCluster, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [SHARDLOG, "local", *args],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One cluster for the first tests: each may find it as it is, or make it."""
    with local_cluster(tmp_path_factory.mktemp("starting") / "cluster") as cluster:
        yield cluster


def test_two_ups_at_once_make_one_cluster(shared: LocalCluster):
    both = [begin(shared, "up", "--nodes", "1") for _ in range(2)]
    told = [each.communicate() for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert {out.splitlines()[-1] for out, _ in told} == {
        f"1 node and the coordinator serve: {load(shared.layout).url}"
    }
    log = shared.layout.log("supervisor").read_text()
    assert log.count("node-1 started") == log.count("coordinator started") == 1


def test_S22_nobody_else_looks_into_a_cluster(shared: LocalCluster):
    """Nor into one that was made before there was a key: the next `up` sees to it."""
    layout = shared.layout
    shared.run("local up --nodes 1")
    key = layout.cluster_key.read_bytes()
    shared.run("local down")
    layout.directory.chmod(0o755)
    layout.cluster_key.unlink()
    shared.run("local up --nodes 1")
    assert layout.directory.stat().st_mode & 0o777 == 0o700
    assert layout.cluster_key.stat().st_mode & 0o777 == 0o600
    assert layout.cluster_key.read_bytes() != key


def test_in_the_foreground_it_stays_until_it_is_interrupted(shared: LocalCluster):
    staying = begin(shared, "up", "--nodes", "1", "--foreground")
    assert staying.stdout is not None
    while "Ctrl-C stops it" not in staying.stdout.readline():
        assert staying.poll() is None
    before = shared.pids()
    supervisor = shared.pid("supervisor")
    shared.run("local kill supervisor")
    while shared.pid("supervisor") in (None, supervisor):
        assert staying.poll() is None
    assert shared.pids() == before
    staying.send_signal(signal.SIGINT)
    out, _ = staying.communicate()
    assert staying.returncode == 0
    assert "the cluster is down" in out
    assert set(shared.pids().values()) == {None}


def test_a_port_that_is_taken_can_be_changed(shared: LocalCluster):
    if not shared.layout.cluster_file.exists():
        shared.layout.directory.mkdir()
        save(shared.layout, new_cluster(1))
    taken = load(shared.layout).nodes[0].control
    with socket.create_server((HOST, port_of(taken))):
        told = shared.refused("local up", exit_codes.UNAVAILABLE)
        assert f"{taken}, where node-1 listens, is taken" in told
        assert set(shared.pids().values()) == {None}
        shared.run("local up --new-ports")
        assert load(shared.layout).nodes[0].control != taken


def test_a_cluster_whose_files_are_gone_stops(shared: LocalCluster):
    shared.run("local up --nodes 1")
    shared.layout.cluster_file.unlink()
    deadline = time.monotonic() + 30
    while any(shared.pid(name) for name in ("supervisor", "coordinator", "node-1")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_node_that_cannot_run_says_why(cluster: LocalCluster):
    cluster.layout.directory.mkdir()
    save(cluster.layout, new_cluster(1))
    cluster.layout.nodes.mkdir()
    (cluster.layout.nodes / "node-1").write_text("not a directory")
    told = cluster.run("local up --timeout 30", exit_codes.UNAVAILABLE).stderr.splitlines()[-1]
    assert "node-1 ends again and again" in told
    assert "not a directory" in told


def test_metadata_that_is_damaged_is_told_and_left_alone(cluster: LocalCluster):
    cluster.layout.directory.mkdir()
    cluster.layout.metadata.write_bytes(b"something else" * 1000)
    result = cluster.run("local up --nodes 1 --timeout 30", exit_codes.UNAVAILABLE)
    told = result.stderr.splitlines()[-1]
    assert "coordinator ends again and again" in told
    assert "metadata.sqlite" in told
    assert cluster.layout.metadata.read_bytes() == b"something else" * 1000


@pytest.mark.parametrize(
    ("path", "said"),
    [("file", "File exists"), ("file/below", "Not a directory")],
)
def test_a_directory_that_cannot_be(tmp_path: Path, path: str, said: str):
    (tmp_path / "file").write_text("")
    told = LocalCluster(tmp_path / path).refused("local up", exit_codes.UNAVAILABLE)
    assert said in told


def test_nodes_that_are_not_installed(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "NEEDED", ("no_such_module",))
    told = cluster.refused("local up", exit_codes.UNAVAILABLE)
    assert "no_such_module is not installed: pip install 'shardlog[node]'" in told


@pytest.mark.parametrize("line", ["local status", "local down", "local logs", "local kill node-1"])
def test_no_cluster(cluster: LocalCluster, line: str):
    assert "`shardlog local up` makes one" in cluster.refused(line, exit_codes.UNAVAILABLE)


def test_a_cluster_file_that_is_damaged(cluster: LocalCluster):
    cluster.layout.directory.mkdir()
    cluster.layout.cluster_file.write_text("{")
    for line in ("local up", "local status", "shard list"):
        assert "is no cluster file" in cluster.refused(line, exit_codes.UNAVAILABLE)
    cluster.run("local down --delete --yes")
    assert not cluster.layout.directory.exists()


def test_an_up_that_is_killed_or_gives_up_can_be_repeated(cluster: LocalCluster):
    first = begin(cluster, "up", "--nodes", "1")
    while not cluster.layout.cluster_file.exists():
        assert first.poll() is None
    first.kill()
    first.communicate()
    result = cluster.run("local up --timeout 0", exit_codes.UNAVAILABLE)
    assert "does not serve after 0 s" in result.stderr
    cluster.run("local up")
    assert cluster.run("local status").exit_code == 0
