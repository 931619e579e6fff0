"""The nodes as Kubernetes knows them: pods with our labels, and the machines they run on.

Whether a pod is ready also depends on a gate that we set ourselves, so a node counts as alive by
its containers and its machine alone.  For how long one has been lost is counted by our own clock
since we first saw it: an operator that starts gives every node the whole grace period again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardlog_operator.discovery import LeaderPod
from shardlog_operator.placing import Place, Places

Body = Mapping[str, Any]
POOL_LABEL = "shardlog.dev/pool"
HOST = "shardlog.dev/host"
GATE = "shardlog.dev/replicated"
PORTS = {"data": 7400, "control": 7401, "http": 7402}
PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class Machine:
    """A Node of Kubernetes."""

    name: str
    ready: bool = True
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def machine_of(body: Body) -> Machine:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return Machine(
        name=body["metadata"]["name"],
        ready=_condition(status, "Ready") != "False" and _condition(status, "Ready") != "Unknown",
        cordoned=bool(spec.get("unschedulable")),
        labels=dict(body["metadata"].get("labels") or {}),
    )


@dataclass(frozen=True, slots=True)
class NodePod:
    name: str
    uid: str
    pool: str
    ip: str | None
    # Where it is reached if not at the pod's address.
    host: str | None
    machine: str | None
    ports: Mapping[str, int]
    running: bool
    terminating: bool
    # Whether it has our readiness gate, and what we said last.
    gated: bool
    gate: str | None
    revision: str
    created: str
    # Of the object: news may come out of order, those of an earlier pod of the name among them.
    version: int = 0

    @property
    def ordinal(self) -> int:
        digits = self.name.rpartition("-")[2]
        return int(digits) if digits.isdecimal() else 0


def node_pod(body: Body) -> NodePod:
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    labels = meta.get("labels") or {}
    gates = [each.get("conditionType") for each in spec.get("readinessGates") or ()]
    return NodePod(
        name=meta["name"],
        uid=meta.get("uid", ""),
        pool=labels.get(POOL_LABEL, "default"),
        ip=status.get("podIP"),
        host=(meta.get("annotations") or {}).get(HOST),
        machine=spec.get("nodeName"),
        ports=_ports(meta.get("annotations") or {}, spec),
        running=status.get("phase") == "Running"
        and _condition(status, "ContainersReady") == "True",
        terminating=bool(meta.get("deletionTimestamp")),
        gated=GATE in gates,
        gate=_condition(status, GATE),
        revision=labels.get("controller-revision-hash", ""),
        created=meta.get("creationTimestamp", ""),
        version=version_of(body),
    )


def version_of(body: Body) -> int:
    """Versions of one kind of objects grow; 0 if there is none."""
    found = body["metadata"].get("resourceVersion", "")
    return int(found) if found.isdecimal() else 0


def _condition(status: Body, name: str) -> str | None:
    found = (each for each in status.get("conditions") or () if each.get("type") == name)
    return next((each.get("status") for each in found), None)


def _ports(annotations: Mapping[str, str], spec: Body) -> dict[str, int]:
    """As its containers name them; annotations `shardlog.dev/NAME-port` go before."""
    found = dict(PORTS)
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") in (*PORTS, PUBLIC):
                found[port["name"]] = int(port["containerPort"])
    for name in (*PORTS, PUBLIC):
        told = annotations.get(f"shardlog.dev/{name}-port", "")
        if told.isdecimal():
            found[name] = int(told)
    return found


def leaving(pods: Iterable[NodePod]) -> frozenset[str]:
    """Nodes that shall not lead: those that stop, and the next that a roll will restart.

    A StatefulSet replaces its pods from the highest number down.  Pods of two revisions mean that
    it is at it, and the youngest has the new one.  Every pool is a StatefulSet of its own, whose
    revisions have nothing to do with those of another.
    """
    known = list(pods)
    found = {pod.name for pod in known if pod.terminating}
    for pool in {pod.pool for pod in known}:
        found |= _next_to_restart([pod for pod in known if pod.pool == pool and pod.revision])
    return frozenset(found)


def _next_to_restart(pool: Sequence[NodePod]) -> set[str]:
    if len({pod.revision for pod in pool}) < 2:
        return set()
    new = max(pool, key=lambda pod: (pod.created, pod.ordinal)).revision
    old = [pod for pod in pool if pod.revision != new]
    return {max(old, key=lambda pod: pod.ordinal).name}


class Nodes:
    """What was heard of pods and machines.  `clock_s` never goes back."""

    def __init__(self, clock_s: Callable[[], float], addresses: str | None = None) -> None:
        self.pods: dict[str, NodePod] = {}
        self.machines: dict[str, Machine] = {}
        self._clock_s = clock_s
        self._addresses = addresses
        self._lost_since: dict[str, float] = {}

    def take(self, pod: NodePod) -> bool:
        """Whether anything but its gate has changed."""
        before = self.pods.get(pod.name)
        if before is not None and pod.version < before.version:
            return False
        self.pods[pod.name] = pod
        return before is None or _shape(before) != _shape(pod)

    def drop(self, name: str, uid: str | None = None) -> bool:
        """A pod is gone; not if another of its name has taken its place."""
        known = self.pods.get(name)
        if known is None or (uid and known.uid != uid):
            return False
        del self.pods[name]
        return True

    def places(
        self, members: Iterable[str], drained: frozenset[str], node_grace_s: float
    ) -> Places:
        """`members` are nodes that host replicas: there may be no pod for some of them."""
        now_s, going = self._clock_s(), leaving(self.pods.values())
        found = {}
        for name in {*self.pods, *members}:
            pod = self.pods.get(name)
            machine = self.machines.get(pod.machine or "") if pod else None
            found[name] = Place(
                node=name,
                pool=pod.pool if pod else "",
                lost_s=self._lost_s(name, self._is_alive(pod, machine), now_s),
                cordoned=machine is not None and machine.cordoned,
                leaving=name in going,
                machine=pod.machine if pod else None,
                labels=machine.labels if machine else {},
            )
        for name in self._lost_since.keys() - found.keys():
            del self._lost_since[name]
        return Places(found, drained, node_grace_s)

    def _is_alive(self, pod: NodePod | None, machine: Machine | None) -> bool:
        if pod is None or not pod.running or pod.ip is None:
            return False
        return machine is None or machine.ready

    def _lost_s(self, name: str, alive: bool, now_s: float) -> float | None:
        if alive:
            self._lost_since.pop(name, None)
            return None
        return now_s - self._lost_since.setdefault(name, now_s)

    # --- addresses -------------------------------------------------------------------------------

    def control_address(self, node: str) -> str | None:
        return self._address(node, "control")

    def data_address(self, node: str) -> str | None:
        return self._address(node, "data")

    def _address(self, node: str, plane: str) -> str | None:
        pod = self.pods.get(node)
        if pod is None or pod.ip is None:
            return None
        if pod.host is not None:
            host = pod.host
        elif self._addresses is not None:
            host = self._addresses.replace("{node}", node)
        else:
            host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        return f"{host}:{pod.ports[plane]}"

    def leader_pod(self, node: str | None) -> LeaderPod | None:
        pod = self.pods.get(node or "")
        if pod is None or pod.ip is None:
            return None
        return LeaderPod(
            pod.name, pod.ip, pod.ports["data"], pod.ports.get(PUBLIC), pod.machine, pod.uid
        )


def _shape(pod: NodePod) -> tuple[object, ...]:
    return (
        pod.uid, pod.pool, pod.ip, pod.host, pod.machine, tuple(sorted(pod.ports.items())),
        pod.running, pod.terminating, pod.revision,
    )  # fmt: skip
