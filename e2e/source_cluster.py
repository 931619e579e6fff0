"""A real Kubernetes of three machines on one, made from Go modules and Debian's containerd.

Where no image can be pulled `kind` has nothing to start from; this has.  The control plane runs as
processes, three kubelets with a containerd each are the machines (`machines.py`), one kube-proxy
serves all, since they share the kernel's tables, and CoreDNS runs in a pod.  Volumes are
directories that wait to be claimed.

Everything that is started is taken away again: when the context is left, at Ctrl-C, and, what
`kill -9` left behind, before the next start.

    python -m e2e.source_cluster        bring it up, print the kubeconfig, wait for Ctrl-C
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from e2e import cluster_objects, network
from e2e.api_server import ApiServer, free_port, running, write_kubeconfig
from e2e.binaries import CannotBuild, binary
from e2e.images import archive_of_program
from e2e.kubernetes import Refused
from e2e.machines import CGROUP, PAUSE, Machine, kill_all, remove_cgroup, remove_directory, shims_of
from e2e.processes import CannotStart, start

MACHINES = 3
DIRECTORY = Path("/var/lib/shardlog-e2e")
CONTROL = DIRECTORY / "control.sock"
KUBECONFIG = DIRECTORY / "kubeconfig"
FREE_BYTES_MIN = 14 << 30
READY_TIMEOUT_S = 180
WORDS_BYTES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster, by the process that runs it."""

    api: ApiServer
    machines: tuple[Machine, ...]

    def obey(self, words: Sequence[str]) -> None:
        """What somebody asked for on the control socket; raises `CannotStart`."""
        match words:
            case ["crash", name]:
                self._machine(name).crash()
            case ["start", name]:
                machine = self._machine(name)
                machine.start_containerd()
                machine.start_kubelet()
            case ["restart-api-server"]:
                self.api.restart()
            case _:
                raise CannotStart(f"not understood: {' '.join(words)}")

    def _machine(self, name: str) -> Machine:
        for machine in self.machines:
            if machine.name == name:
                return machine
        raise CannotStart(f"no machine {name}")


@contextmanager
def source_cluster(directory: Path = DIRECTORY) -> Iterator[Running]:
    """Up and Ready when entered, gone when left; raises `CannotBuild` and `CannotStart`."""
    _require(directory)
    network.require_addresses()
    address = network.machine_address()
    with ExitStack() as stack:
        stack.enter_context(_alone())
        archives = [
            archive_of_program("pause", PAUSE),
            archive_of_program("coredns", cluster_objects.DNS_IMAGE),
        ]
        for name in ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"):
            binary(name)
        if directory.exists():
            print(f"e2e: cleaning up what an earlier run left in {directory}", file=sys.stderr)
        clean(directory)
        stack.callback(clean, directory)
        directory.mkdir(parents=True)
        if network.forward():
            stack.callback(network.FORWARDING.write_text, "0")
        _make_kubelet_client(directory)
        api = stack.enter_context(running(directory, address, _flags(directory, address)))
        _start_controllers(stack, api)
        machines = tuple(_machine(stack, api, number + 1, address) for number in range(MACHINES))
        for machine in machines:
            for archive in archives:
                machine.import_image(archive)
            machine.start_kubelet()
        _await_ready(api, machines)
        yield Running(api, machines)


def _await_ready(api: ApiServer, machines: Sequence[Machine]) -> None:
    try:
        cluster_objects.apply(api, machines)
        cluster_objects.await_ready(api, MACHINES, READY_TIMEOUT_S)
    except Refused as refusal:
        ended = next(filter(None, (machine.why_ended() for machine in machines)), "")
        last = str(refusal).splitlines()[-1:] or ["kubectl failed"]
        raise CannotStart(ended or f"the cluster is not Ready: {last[0]}") from refusal


def clean(directory: Path) -> None:
    """What a run left behind, whole or in part."""
    for number in range(1, MACHINES + 1):
        socket = directory / f"machine-{number}" / "containerd.sock"
        kill_all(shims_of(socket), f"/{CGROUP}/machine-{number}")
    remove_cgroup(f"/{CGROUP}")
    remove_directory(directory)
    network.remove_bridge()
    network.remove_kubelet_chains()
    for result in Path("/var/lib/cni/results").glob("shardlog-*"):
        result.unlink()
    for link in Path("/var/log/containers").glob("*.log"):
        if directory in Path(os.readlink(link)).parents:
            link.unlink()


def _require(directory: Path) -> None:
    if os.geteuid() != 0:
        raise CannotStart("a cluster of one's own needs root: sudo, or E2E_KUBECONFIG for another")
    for program, package in (("containerd", "containerd"), ("ctr", "containerd"), ("runc", "runc")):
        if shutil.which(program) is None:
            raise CannotStart(f"{program} is missing: apt-get install {package}")
    network.require_network()
    free = shutil.disk_usage(directory.parent).free
    if free < FREE_BYTES_MIN:
        raise CannotStart(
            f"{directory.parent}: {free >> 30} GiB free, {FREE_BYTES_MIN >> 30} needed: make room"
        )


@contextmanager
def _alone() -> Iterator[None]:
    """Bridge, cgroups and tables of the kernel are there once."""
    with Path("/run/shardlog-e2e.lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = "another cluster of this kind is running on this machine: end it first"
            raise CannotStart(why) from None
        yield


def _make_kubelet_client(directory: Path) -> None:
    """Who may ask kubelets for logs and processes: the API server, by a certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "kubelet-authority.pem")
    client = authority.issue_cert("kube-apiserver", common_name="kube-apiserver")
    client.cert_chain_pems[0].write_to_path(directory / "kubelet-client.pem")
    client.private_key_pem.write_to_path(directory / "kubelet-client-key.pem")


def _flags(directory: Path, address: str) -> Sequence[str]:
    return (
        "--allow-privileged",
        f"--advertise-address={address}",
        f"--kubelet-client-certificate={directory / 'kubelet-client.pem'}",
        f"--kubelet-client-key={directory / 'kubelet-client-key.pem'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--default-not-ready-toleration-seconds=30",
        "--default-unreachable-toleration-seconds=30",
    )


def _start_controllers(stack: ExitStack, api: ApiServer) -> None:
    shared = (f"--kubeconfig={api.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1")
    commands = {
        "kube-controller-manager": (
            f"--service-account-private-key-file={api.directory / 'key.pem'}",
            f"--root-ca-file={api.authority}",
            "--node-monitor-grace-period=20s",
        ),
        "kube-scheduler": (),
    }
    for name, flags in commands.items():
        command = [str(binary(name)), *shared, f"--secure-port={free_port()}", *flags]
        stack.callback(start(name, command, api.directory).stop)
    command = [
        str(binary("kube-proxy")),
        f"--kubeconfig={api.kubeconfig}",
        "--hostname-override=machine-1",
        "--proxy-mode=iptables",
        "--masquerade-all",
        "--iptables-localhost-nodeports=false",
        "--conntrack-max-per-core=0",
        f"--healthz-bind-address=127.0.0.1:{free_port()}",
        f"--metrics-bind-address=127.0.0.1:{free_port()}",
    ]
    proxy = start("kube-proxy", command, api.directory)
    stack.callback(_forget_services)
    stack.callback(proxy.stop)


def _forget_services() -> None:
    """What kube-proxy wrote into the kernel's tables."""
    subprocess.run([str(binary("kube-proxy")), "--cleanup"], capture_output=True, check=False)


def _machine(stack: ExitStack, api: ApiServer, number: int, address: str) -> Machine:
    root = api.directory / f"machine-{number}"
    root.mkdir()
    kubeconfig = root / "kubeconfig"
    write_kubeconfig(kubeconfig, api.url, api.authority, api.token)
    authority = api.directory / "kubelet-authority.pem"
    machine = Machine(number, root, address, authority, kubeconfig)
    stack.callback(machine.stop)
    machine.start_containerd()
    return machine


def serve(cluster: Running, path: Path) -> None:
    """Do what is asked for, a few words and one answer a connection, until interrupted."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        while True:
            caller, _ = listening.accept()
            with caller:
                words = caller.recv(WORDS_BYTES_MAX).decode().split()
                if words:
                    caller.sendall(f"{_answer(cluster, words)}\n".encode())


def _answer(cluster: Running, words: Sequence[str]) -> str:
    try:
        cluster.obey(words)
    except (CannotStart, Refused) as failure:
        return str(failure)
    return "done"


def main() -> int:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.default_int_handler)
    try:
        with source_cluster() as cluster:
            print(f"export KUBECONFIG={cluster.api.kubeconfig}", flush=True)
            serve(cluster, CONTROL)
    except (CannotBuild, CannotStart) as failure:
        print(f"e2e: {failure}", file=sys.stderr)
        return 8
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
