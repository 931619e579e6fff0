"""A cluster of the end-to-end tests that cannot start, or was killed, leaves nothing behind.

The harness itself runs, in namespaces of its own: processes, mounts, interfaces and addresses are
its alone there, and so are /run, /var/lib and /var/log.  Programs that are not what is tried here
are scripts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from e2e import source_cluster
from e2e.binaries import PROGRAMS

ROOT = Path(__file__).parent.parent
APART = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
ROOM = f"size={source_cluster.FREE_BYTES_MIN + (1 << 30)}"
HIDDEN = f"""
cut -d ' ' -f 2 /proc/self/mounts | grep shardlog-e2e | sort -r | xargs -r umount --lazy
for each in /run /var/lib /var/log; do mount -t tmpfs -o {ROOM} tmpfs $each; done
echo 0 > /proc/sys/net/ipv4/ip_forward
"""
"""A cluster that runs on this machine at the same time is not seen."""
CONNECTED = """
ip link set lo up
ip link add uplink type bridge
ip address add 192.0.2.2/24 dev uplink
ip link set uplink up
ip route add default via 192.0.2.1
"""
NO_CGROUPS = "mount -t tmpfs tmpfs /sys/fs/cgroup"
BEGIN = """
import os, signal, subprocess, sys, time
from pathlib import Path
from e2e import machines, network, source_cluster
network.PLUGINS = Path(os.environ["PROGRAMS"])
source_cluster.archive_of_program = lambda name, image: Path(name)
"""
TOLD = """
links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
print("forwarding", network.FORWARDING.read_text().strip())
print("bridge", network.BRIDGE in links)
print("directory", source_cluster.DIRECTORY.exists())
print("mounts", str(source_cluster.DIRECTORY) in Path("/proc/self/mounts").read_text())
others = {pid for pid in os.listdir("/proc") if pid.isdecimal()} - {"1", str(os.getpid())}
running = [pid for pid in others if "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2:3]]
print("processes", len(running))
"""
NOTHING = {
    "forwarding": "0", "bridge": "False", "directory": "False", "mounts": "False", "processes": "0"
}  # fmt: skip


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """What a cluster is made of, as scripts that fail; a test writes others in their place."""
    directory = tmp_path / "programs"
    for name in ("containerd", "ctr", "runc", "conntrack", "bridge"):
        provide(directory / name, "exit 1")
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
    for name in (*names, "etcd"):
        provide(built(tmp_path, name), "exit 1")
    return directory


def built(tmp_path: Path, name: str) -> Path:
    program = PROGRAMS[name]
    top = tmp_path / "cache" / "shardlog" / "bin"
    return top / f"{program.module}-{program.version}" / name


def provide(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def apart(tmp_path: Path, script: str, *preparing: str) -> subprocess.CompletedProcess[str]:
    prepare = "\n".join(("set -e", HIDDEN, *preparing, 'exec "$@"'))
    command = [*APART, "sh", "-c", prepare, "sh", sys.executable, "-c", BEGIN + script]
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'programs'}:{os.environ['PATH']}",
        "PROGRAMS": str(tmp_path / "programs"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    if os.geteuid() or subprocess.run([*APART, "ip", "link"], check=False).returncode:
        pytest.skip("needs namespaces and iproute2: run as root")
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def told(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The lines of `TOLD`."""
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: line[1] for line in lines if len(line) == 2}


def test_a_start_that_fails_half_way(tmp_path: Path, programs: Path):
    """etcd is the first of many processes; directory, forwarding and secrets are there by then."""
    provide(built(tmp_path, "etcd"), "echo no space left on device; exit 1")
    script = "print('status', source_cluster.main())"
    done = apart(tmp_path, script + TOLD, CONNECTED, NO_CGROUPS)
    assert told(done) == {"status": "8", **NOTHING}
    assert done.stderr.splitlines() == ["e2e: etcd ended (1): no space left on device"]


def test_interrupted_while_it_starts(tmp_path: Path, programs: Path):
    """etcd never serves; by then there is a process, too."""
    provide(built(tmp_path, "etcd"), "exec sleep 600")
    script = textwrap.dedent("""
        child = os.fork()
        if not child:
            os._exit(source_cluster.main())
        deadline = time.monotonic() + 60
        while not (source_cluster.DIRECTORY / "etcd.log").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(child, signal.SIGINT)
        print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    done = apart(tmp_path, script + TOLD, CONNECTED, NO_CGROUPS)
    assert told(done) == {"status": "130", **NOTHING}


def test_what_a_killed_run_left(tmp_path: Path, programs: Path):
    """Mounts, a bridge, addresses of containers, and a container that still runs."""
    script = textwrap.dedent(f"""
        source_cluster.CGROUP = "shardlog-e2e-left-{os.getpid()}"
        state = source_cluster.DIRECTORY / "machine-1" / "state"
        state.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", state], check=True)
        (state / "file").touch()
        result = Path("/var/lib/cni/results/shardlog-1-abc")
        result.parent.mkdir(parents=True)
        result.touch()
        subprocess.run(["ip", "link", "add", network.BRIDGE, "type", "bridge"], check=True)
        machines.make_cgroup(f"/{{source_cluster.CGROUP}}/machine-1")
        container = subprocess.Popen(["sleep", "600"])
        for directory in machines.cgroup_directories(f"/{{source_cluster.CGROUP}}/machine-1"):
            (directory / "cgroup.procs").write_text(str(container.pid))
        source_cluster.clean(source_cluster.DIRECTORY)
        print("container", container.wait())
        print("cgroups", len(machines.cgroup_directories(f"/{{source_cluster.CGROUP}}")))
        print("results", result.exists())
        source_cluster.clean(source_cluster.DIRECTORY)
    """)
    done = apart(tmp_path, script + TOLD)
    assert told(done) == {"container": "-9", "cgroups": "0", "results": "False", **NOTHING}


def test_cgroups_of_version_2(tmp_path: Path, programs: Path):
    """One hierarchy, wherever it is mounted; here the kernel may have left it no controller."""
    script = textwrap.dedent(f"""
        machines.CGROUPS = Path("/var/lib/unified")
        machines.CGROUPS.mkdir()
        subprocess.run(["mount", "-t", "cgroup2", "cgroup2", machines.CGROUPS], check=True)
        top = "/shardlog-e2e-unified-{os.getpid()}"
        print("hierarchies", len(machines.hierarchies()))
        machines.make_cgroup(top + "/machine-1")
        container = subprocess.Popen(["sleep", "600"])
        (machines.CGROUPS / top[1:] / "machine-1" / "cgroup.procs").write_text(str(container.pid))
        print("found", machines.pids_of(top) == {{container.pid}})
        machines.kill_all([], top)
        print("container", container.wait())
        machines.remove_cgroup(top)
        print("cgroups", len(machines.cgroup_directories(top)))
    """)
    found = told(apart(tmp_path, script))
    assert found == {"hierarchies": "1", "found": "True", "container": "-9", "cgroups": "0"}


def test_another_one_that_runs_is_left_alone(tmp_path: Path, programs: Path):
    script = textwrap.dedent("""
        (source_cluster.DIRECTORY / "machine-1").mkdir(parents=True)
        with source_cluster._alone():
            print("status", source_cluster.main())
        print("theirs", (source_cluster.DIRECTORY / "machine-1").exists())
    """)
    done = apart(tmp_path, script, CONNECTED, NO_CGROUPS)
    assert told(done) == {"status": "8", "theirs": "True"}
    told_why = "e2e: another cluster of this kind is running on this machine: end it first"
    assert done.stderr.splitlines() == [told_why]
