"""One machine of a cluster that has several on one: its containerd and its kubelet.

Everything that two of them could fight over is a machine's own: sockets, root and state
directories, ports, pod addresses, volumes, cgroups.  What a machine is made of says also how it is
lost: `crash` kills the kubelet, containerd and all that runs in its cgroup at once, as a power
failure would; `stop` does the same and then takes away what is left in the kernel.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from e2e import network
from e2e.api_server import free_port
from e2e.binaries import binary
from e2e.processes import CannotStart, Process, start

CGROUPS = Path("/sys/fs/cgroup")
CGROUP = "shardlog-e2e"
SHARES, WEIGHT = 24 * 1024, 24 * 100
"""Those of a process are 1024, or 100 in version 2 of cgroups; this many are busy at times."""
PAUSE = "registry.k8s.io/pause:3.10"
DNS = "10.96.0.10"
VOLUMES = 8
"""Volumes that are there to be claimed, on each machine."""

CONTAINERD = """\
version = 2
root = "{root}/containerd"
state = "{root}/state"

[grpc]
  address = "{root}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{root}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


@dataclass(slots=True)
class Machine:
    """`number` counts from 1; `root` is its directory, and `authority` that of the cluster."""

    number: int
    root: Path
    address: str
    authority: Path
    kubeconfig: Path
    processes: list[Process] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"machine-{self.number}"

    @property
    def socket(self) -> Path:
        return self.root / "containerd.sock"

    @property
    def cgroup(self) -> str:
        return f"/{CGROUP}/{self.name}"

    def start_containerd(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        network.write_plugin_configuration(self.root / "cni", self.root / "ipam", self.number)
        configuration = self.root / "containerd.toml"
        configuration.write_text(
            CONTAINERD.format(root=self.root, pause=PAUSE, plugins=network.PLUGINS)
        )
        process = start("containerd", ["containerd", "--config", str(configuration)], self.root)
        self.processes.append(process)
        process.await_ready(lambda: self._ctr("version").returncode == 0)

    def import_image(self, archive: Path) -> None:
        """Once: the name of an archive says what is in it."""
        imported = self.root / "images" / archive.name
        if imported.exists():
            return
        done = self._ctr("images", "import", str(archive))
        if done.returncode != 0:
            raise CannotStart(f"{self.name}: {archive.name}: {done.stderr.strip()}")
        imported.parent.mkdir(exist_ok=True)
        imported.touch()

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def start_kubelet(self) -> None:
        make_cgroup(self.cgroup)
        for number in range(VOLUMES):
            (self.root / "volumes" / str(number)).mkdir(parents=True, exist_ok=True)
        configuration = self.root / "kubelet.yaml"
        configuration.write_text(yaml.safe_dump(self._kubelet_configuration()))
        command = [
            str(binary("kubelet")),
            f"--config={configuration}",
            f"--kubeconfig={self.kubeconfig}",
            f"--root-dir={self.root / 'kubelet'}",
            f"--cert-dir={self.root / 'pki'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels=topology.kubernetes.io/zone=zone-{self.number}",
        ]
        self.processes.append(start("kubelet", command, self.root))

    def _kubelet_configuration(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": free_port(self.address),
            "healthzPort": free_port(),
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.authority)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "100Mi"},
            "podLogsDir": str(self.root / "logs"),
            "volumePluginDir": str(self.root / "plugins"),
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
        }

    def tag_image(self, image: str, other: str) -> None:
        """The same image under another name."""
        done = self._ctr("images", "tag", "--force", image, other)
        if done.returncode != 0:
            raise CannotStart(f"{self.name}: {other}: {done.stderr.strip()}")

    def pids_of_pod(self, uid: str) -> set[int]:
        """What runs in the containers of a pod, without that which keeps the pod itself."""
        pids: set[int] = set()
        for directory in cgroup_directories(self.cgroup):
            if f"pod{uid}" in directory.parts:
                pids.update(pids_in(directory))
        return {pid for pid in pids if program_of(pid) not in ("pause", "")}

    def why_ended(self) -> str:
        """Of what should run on it and does not; nothing if all of it runs."""
        for process in self.processes:
            if process.running.poll() is not None:
                status = process.running.returncode
                return f"{self.name}: {process.name} ended ({status}): {process.last_line()}"
        return ""

    def crash(self) -> None:
        """As if it had lost power."""
        for process in reversed(self.processes):
            process.kill()
        self.processes.clear()
        kill_all(shims_of(self.socket), self.cgroup)

    def stop(self) -> None:
        """Nothing of it stays but its directory."""
        self.crash()
        unmount_below(self.root)
        remove_cgroup(self.cgroup)


def make_cgroup(path: str) -> None:
    """In every hierarchy there is; a cpuset of version 1 takes nobody before it is filled.

    The scheduler of the kernel counts a cgroup as one process among those outside of it, so that
    all pods together would have the share of one.
    """
    for top in hierarchies():
        below = top
        for part in path.strip("/").split("/"):
            _hand_controllers_down(below)
            below = below / part
            below.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (below / name).exists() and (top / name).exists():
                    (below / name).write_text((top / name).read_text())
            for name, share in (("cpu.shares", SHARES), ("cpu.weight", WEIGHT)):
                if (below / name).exists():
                    (below / name).write_text(str(share))


def _hand_controllers_down(directory: Path) -> None:
    """Version 2 only: what is below has those that this allows."""
    allowed = directory / "cgroup.subtree_control"
    if allowed.exists():
        for controller in (directory / "cgroup.controllers").read_text().split():
            allowed.write_text(f"+{controller}")


def hierarchies() -> list[Path]:
    """One in version 2, one for each controller in version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [each for each in CGROUPS.iterdir() if (each / "cgroup.procs").exists()]


def cgroup_directories(path: str) -> list[Path]:
    """The deepest first, in every hierarchy."""
    found: list[Path] = []
    for top in hierarchies():
        found += [Path(each) for each, _, _ in os.walk(top / path.strip("/"), topdown=False)]
    return found


def kill_all(first: list[int], cgroup: str) -> None:
    """Those of the cgroup, until none is left; `first` would tell others that they ended."""
    for pid in first:
        kill(pid)
    while pids := pids_of(cgroup):
        for pid in pids:
            kill(pid)
        time.sleep(0.05)


def pids_of(cgroup: str) -> set[int]:
    pids: set[int] = set()
    for directory in cgroup_directories(cgroup):
        pids.update(pids_in(directory))
    return pids


def pids_in(directory: Path) -> set[int]:
    try:
        return {int(each) for each in (directory / "cgroup.procs").read_text().split()}
    except OSError:
        return set()


def program_of(pid: int) -> str:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name
    except OSError:
        return ""


def shims_of(socket: Path) -> list[int]:
    """The processes between this containerd and its containers: they name its socket."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "shim" in words[0] and str(socket) in words:
            found.append(int(directory.name))
    return found


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def remove_cgroup(path: str) -> None:
    for directory in cgroup_directories(path):
        deadline = time.monotonic() + 10.0
        while directory.exists():
            try:
                directory.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)


def unmount_below(root: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((each for each in mounts if Path(each).is_relative_to(root)), reverse=True):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)


def remove_directory(root: Path) -> None:
    unmount_below(root)
    shutil.rmtree(root, ignore_errors=True)
