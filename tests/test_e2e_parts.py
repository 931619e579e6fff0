"""Parts of the end-to-end harness that need no Kubernetes: real processes, and what is missing."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import (
    api_server,
    capped_runtime,
    images,
    kind_cluster,
    network,
    no_such_name,
    providers,
    source_cluster,
)
from e2e.binaries import CannotBuild
from e2e.holding import HeldProcesses
from e2e.kubernetes import Kubernetes
from e2e.processes import CannotStart, start

ENDLESS = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("here", flush=True)
time.sleep(600)
"""
PARENT = """
import sys
from pathlib import Path
from e2e.kubernetes import Kubernetes
from e2e.processes import start
script = "import time; print('here', flush=True); time.sleep(600)"
process = start("child", [sys.executable, "-c", script], Path(sys.argv[1]))
process.await_ready(lambda: "here" in process.log.read_text())
print(process.running.pid, flush=True)
sys.stdin.read()
"""


def has_begun(log: Path) -> bool:
    return "here" in log.read_text()


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def test_a_process_is_waited_for_and_stopped(tmp_path: Path):
    process = start("endless", ENDLESS, tmp_path)
    process.await_ready(lambda: has_begun(process.log))
    process.stop()
    assert process.running.returncode == -15
    process.stop()


def test_one_that_will_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("e2e.processes.STOP_TIMEOUT_S", 0.2)
    process = start("stubborn", [sys.executable, "-c", STUBBORN], tmp_path)
    process.await_ready(lambda: has_begun(process.log))
    process.stop()
    assert process.running.returncode == -9


def test_one_that_ends_early_is_told_with_its_last_line(tmp_path: Path):
    script = "import sys; print('first'); sys.exit('port 80 is taken')"
    process = start("early", [sys.executable, "-c", script], tmp_path)
    with pytest.raises(CannotStart) as failure:
        process.await_ready(lambda: False)
    assert str(failure.value) == "early ended (1): port 80 is taken"


def test_one_that_never_serves_is_told(tmp_path: Path):
    process = start("endless", ENDLESS, tmp_path)
    with pytest.raises(CannotStart, match="endless is not ready: "):
        process.await_ready(lambda: False, timeout_s=0.2)
    process.stop()


def test_a_killed_run_leaves_no_process(tmp_path: Path):
    root = Path(__file__).parent.parent
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin
    assert parent.stdout
    child = int(parent.stdout.readline())
    pidfd = os.pidfd_open(child)
    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    assert select.select([pidfd], [], [], 60.0)[0]
    os.close(pidfd)
    assert is_gone(child)


COUNTING = """
while True:
    print("here", flush=True)
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_held_process_runs_in_steps_only(tmp_path: Path):
    process = start("counting", [sys.executable, "-c", COUNTING], tmp_path)
    pid = process.running.pid
    process.await_ready(lambda: has_begun(process.log))
    held = HeldProcesses({pid})
    process.await_ready(lambda: state_of(pid) == "T")
    for _ in range(3):
        before = process.log.stat().st_size

        def has_gone_on(before: int = before) -> bool:
            held.step(0.01)
            return process.log.stat().st_size > before

        process.await_ready(has_gone_on)
        process.await_ready(lambda: state_of(pid) == "T")
    held.let_go()
    process.await_ready(lambda: state_of(pid) != "T")
    held = HeldProcesses({pid})
    held.kill()
    assert process.running.wait() == -9
    held.let_go()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing on PATH but what is put into this directory."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def provide(programs: Path, *names: str, script: str = "exit 0") -> None:
    for name in names:
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)


def test_no_builder(programs: Path):
    provide(programs, "docker", script="exit 1")
    with pytest.raises(CannotBuild, match="neither docker nor buildah works here: apt-get install"):
        images.builder()


def test_builders(programs: Path):
    provide(programs, "buildah")
    assert isinstance(images.builder(), images.Buildah)
    provide(programs, "docker")
    assert isinstance(images.builder(), images.Docker)


def test_a_step_that_fails_is_one_line(programs: Path, tmp_path: Path):
    provide(programs, "buildah", script="echo long story >&2; echo no space left >&2; exit 1")
    with pytest.raises(CannotBuild) as failure:
        images.Buildah().build(tmp_path, tmp_path / "Dockerfile", "image")
    assert str(failure.value) == "buildah build: no space left"


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ((), "containerd is missing: apt-get install containerd"),
        (("containerd", "ctr"), "runc is missing: apt-get install runc"),
        (("containerd", "ctr", "runc"), "ip is missing: apt-get install iproute2"),
        (("containerd", "ctr", "runc", "ip"), "iptables is missing: apt-get install iptables"),
        (
            ("containerd", "ctr", "runc", "ip", "iptables", "conntrack"),
            "no bridge plugin in /nowhere: apt-get install containernetworking-plugins",
        ),
    ],
)
def test_a_cluster_says_what_is_missing(
    programs: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], told: str
):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(network, "PLUGINS", Path("/nowhere"))
    provide(programs, *there)
    with pytest.raises(CannotStart) as failure, source_cluster.source_cluster(programs):
        raise AssertionError("it started")
    assert str(failure.value) == told


def test_a_cluster_needs_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotStart, match="needs root"), source_cluster.source_cluster(tmp_path):
        raise AssertionError("it started")


def test_a_cluster_needs_room(programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(network, "PLUGINS", programs)
    monkeypatch.setattr(source_cluster, "FREE_BYTES_MIN", 1 << 60)
    provide(programs, "containerd", "ctr", "runc", "ip", "iptables", "conntrack", "bridge")
    with pytest.raises(CannotStart, match=r"GiB free, 1073741824 needed: make room"):
        source_cluster.source_cluster(tmp_path / "cluster").__enter__()


def test_a_cluster_needs_addresses_that_nobody_has():
    lo = "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever"
    network.require_addresses(lo)
    own = f"7: {network.BRIDGE}    inet 10.244.0.1/16 brd 10.244.255.255 scope global"
    network.require_addresses(f"{lo}\n{own}")
    other = "9: cni0    inet 10.244.3.1/24 brd 10.244.3.255 scope global cni0"
    with pytest.raises(CannotStart, match=r"cni0 has 10\.244\.3\.1/24, and pods need 10\.244"):
        network.require_addresses(f"{lo}\n{other}")
    wide = "4: eth1    inet 10.0.0.7/8 brd 10.255.255.255 scope global eth1"
    with pytest.raises(CannotStart, match=r"eth1 has 10\.0\.0\.7/8, and pods need 10\.244"):
        network.require_addresses(wide)
    services = "5: eth2    inet 10.96.7.1/24 brd 10.96.7.255 scope global eth2"
    with pytest.raises(CannotStart, match=r"eth2 has 10\.96\.7\.1/24, and Services need 10\.96"):
        network.require_addresses(services)


@pytest.mark.needs("etcd")
def test_a_port_that_is_taken_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each try chooses another port; here all of them find the same, and somebody has it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(api_server, "free_port", lambda *_: taken.getsockname()[1])
        with pytest.raises(CannotStart) as failure, api_server.running(tmp_path):
            raise AssertionError("it started")
    assert "address already in use" in str(failure.value)
    assert "\n" not in str(failure.value)


def ask_for_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(providers.KUBECONFIG_VARIABLE, raising=False)
    monkeypatch.setenv(providers.PROVIDER_VARIABLE, "kind")
    monkeypatch.setenv(kind_cluster.IMAGE_VARIABLE, "kindest/node:v1.34.0")


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ((), "dockerd is missing: apt-get install docker.io"),
        (("dockerd", "docker"), "containerd is missing: apt-get install containerd"),
    ],
)
def test_kind_is_not_replaced_by_another_cluster(
    programs: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], told: str
):
    ask_for_kind(monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for each in there:
        provide(programs, each, script="exit 1")
    with pytest.raises(CannotStart) as failure, providers.cluster():
        raise AssertionError("it started")
    assert str(failure.value) == told


def test_only_root_starts_a_docker_daemon(programs: Path, monkeypatch: pytest.MonkeyPatch):
    ask_for_kind(monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotStart) as failure, providers.cluster():
        raise AssertionError("it started")
    assert str(failure.value) == "no Docker daemon runs here, and to start one needs root"


def test_docker_that_does_not_answer_is_one_line(programs: Path, monkeypatch: pytest.MonkeyPatch):
    ask_for_kind(monkeypatch)
    provide(programs, "docker", script="exit 0")
    provide(programs, "kind", script="echo story >&2; echo cannot connect to docker >&2; exit 1")
    with pytest.raises(CannotStart) as failure, providers.cluster():
        raise AssertionError("it started")
    assert str(failure.value) == "kind get clusters: cannot connect to docker"


def test_another_provider_is_one_line(monkeypatch: pytest.MonkeyPatch):
    ask_for_kind(monkeypatch)
    monkeypatch.setenv(providers.PROVIDER_VARIABLE, "minikube")
    with pytest.raises(CannotStart) as failure, providers.cluster():
        raise AssertionError("it started")
    assert str(failure.value) == "PROVIDER=minikube: neither source nor kind"


def test_the_runtime_asks_for_no_capability_that_is_missing(tmp_path: Path):
    """Of a container, and of a process that is started in it."""
    held = {"capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "ambient": []}}
    capped = {"capabilities": {"bounding": ["CAP_CHOWN"], "ambient": []}}
    container, process = tmp_path / "config.json", tmp_path / "process.json"
    container.write_text(json.dumps({"ociVersion": "1.0.2", "process": held}))
    process.write_text(json.dumps(held))
    for words in (
        ["--log", "a.json", "create", "--bundle", str(tmp_path), "name"],
        ["exec", "--process", str(process), "name"],
        ["delete", "name"],
    ):
        capped_runtime.cap(words, {"CAP_SYS_RESOURCE"})
    assert json.loads(container.read_text()) == {"ociVersion": "1.0.2", "process": capped}
    assert json.loads(process.read_text()) == capped


def test_no_name_is_known_to_those_who_reach_no_server():
    question = b"\3etc\4logs\3svc\0" + b"\0\x1c" + b"\0\1"
    query = b"\x12\x34" + b"\1\0" + b"\0\1" + bytes(6) + question
    told = no_such_name.answer(query + b"and options")
    assert told == b"\x12\x34" + b"\x81\x83" + b"\0\1" + bytes(6) + question
    assert no_such_name.answer(b"") == no_such_name.answer(query[:14]) == b""


def test_a_process_without_a_capability_knows_which():
    script = "from e2e import capped_runtime; print(*sorted(capped_runtime.missing_capabilities()))"
    without = ["setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time"]
    words = [*(without if os.geteuid() == 0 else ()), sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "CAP_SYS_TIME" in done.stdout.split()


def test_a_given_cluster_that_does_not_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    missing = tmp_path / "none"
    monkeypatch.setenv(providers.KUBECONFIG_VARIABLE, str(missing))
    with pytest.raises(CannotStart) as failure, providers.cluster():
        raise AssertionError("it started")
    assert str(failure.value) == f"E2E_KUBECONFIG: no file {missing}"


def test_a_given_cluster_is_not_broken():
    given = providers.GivenCluster(Kubernetes(Path("/nowhere")))
    for touch in (
        lambda: given.crash("machine"),
        lambda: given.kill_processes("machine", "uid"),
        lambda: given.hold({"uid": "machine"}),
        lambda: given.start("machine"),
        lambda: given.tag("image:1", "image:2"),
        given.restart_api_server,
        given.shared_directory,
    ):
        with pytest.raises(providers.OutOfReach):
            touch()
