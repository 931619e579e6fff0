"""The network of pods on one machine: a bridge that all kubelets share, and what is undone later.

Every kubelet has addresses of its own on the same bridge, so that all pods reach each other without
routes.  A pod that calls a Service is answered through the machine (kube-proxy masquerades), since
on one bridge an answer would otherwise go back directly, from an address that was never called.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import shutil
import socket
import subprocess
from pathlib import Path

import psutil

from e2e.processes import CannotStart

BRIDGE = "shardlog-e2e"
PODS = "10.244.0.0/16"
SERVICES = "10.96.0.0/16"
GATEWAY = "10.244.0.1"
PLUGINS = Path("/usr/lib/cni")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
KUBELET_CHAINS = (
    ("filter", "KUBE-FIREWALL", "INPUT", "OUTPUT"),
    ("mangle", "KUBE-KUBELET-CANARY"),
)


def machine_address() -> str:
    """The address that others on the network know this machine by; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError as failure:
            raise CannotStart(f"this machine has no address but loopback: {failure}") from failure
        address: str = probe.getsockname()[0]
    return address


def require_network() -> None:
    for program in ("ip", "iptables", "conntrack"):
        if shutil.which(program) is None:
            package = "iproute2" if program == "ip" else program
            raise CannotStart(f"{program} is missing: apt-get install {package}")
    if not (PLUGINS / "bridge").exists():
        raise CannotStart(
            f"no bridge plugin in {PLUGINS}: apt-get install containernetworking-plugins"
        )


def require_addresses(said: str | None = None) -> None:
    """That nobody else has those of pods and Services; `said`: what `ip -o -4 address` says."""
    for who, needed in (("pods", PODS), ("Services", SERVICES)):
        require_free(needed, who, BRIDGE, said)


def require_free(needed: str, who: str, bridge: str, said: str | None = None) -> None:
    """That no interface but our own bridge has any of these addresses."""
    if said is None:
        command = ["ip", "-o", "-4", "address"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in said.splitlines():
        _, interface, _, address, *_ = line.split()
        network = ipaddress.ip_interface(address).network
        if interface != bridge and network.overlaps(ipaddress.ip_network(needed)):
            raise CannotStart(
                f"{interface} has {address}, and {who} need {needed}: "
                f"ip link delete {interface}, if nobody uses it"
            )


def remove_bridge() -> None:
    """Also that of an earlier run: with another address every sandbox would fail."""
    subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True, check=False)


def remove_kubelet_chains() -> None:
    """What kubelets wrote into the kernel's tables, and leave there; not while one still runs."""
    if any(each.info["name"] == "kubelet" for each in psutil.process_iter(["name"])):
        return
    for program, each in itertools.product(("iptables", "ip6tables"), KUBELET_CHAINS):
        table, chain, *from_chains = each
        jumps = [["-D", from_chain, "-j", chain] for from_chain in from_chains]
        for change in (*jumps, ["-F", chain], ["-X", chain]):
            command = [program, "-w", "-t", table, *change]
            subprocess.run(command, capture_output=True, check=False)


def forward() -> bool:
    """Let the machine pass packets on; whether it did not before."""
    if FORWARDING.read_text().strip() == "1":
        return False
    FORWARDING.write_text("1")
    return True


def write_plugin_configuration(directory: Path, data: Path, number: int) -> None:
    """For the kubelet of this number: its share of the addresses."""
    directory.mkdir(parents=True, exist_ok=True)
    addresses = {
        "subnet": PODS,
        "rangeStart": f"10.244.{number}.2",
        "rangeEnd": f"10.244.{number}.254",
        "gateway": GATEWAY,
    }
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(data),
            "ranges": [[addresses]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    document = {"cniVersion": "1.0.0", "name": f"shardlog-{number}", "plugins": [bridge]}
    (directory / "10-bridge.conflist").write_text(json.dumps(document))
