"""Machines: one is drained by `kubectl drain`, and one loses power and comes back."""

from __future__ import annotations

from collections import Counter

from e2e.cluster.release import Pod
from e2e.cluster.scenario import Scenario, Scenarios


def test_a_machine_is_drained(scenarios: Scenarios):
    """One with a single node, since its volume holds it there, and no second one may go then."""
    release = scenarios.release
    machine, node = machine_of_one_node(scenarios)
    with scenarios.scenario("a machine drained", "drained", avoid=machine) as it:
        lead(it, node)
        before = it.pod(node).uid
        flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=240s")
        try:
            it.break_by(lambda: release.kubectl("drain", machine, *flags))
            it.prove("leader", node, it.leader)
            it.prove("pod UID", before, lambda: _uid(scenarios, node))
            it.clients.until_more()
        finally:
            release.kubectl("uncordon", machine)
        it.until_steady()
        release.until_whole()


def test_a_machine_loses_power(scenarios: Scenarios):
    """Kubelet, containerd and all containers are killed at once; later it is switched on again."""
    release = scenarios.release
    machine = max(pod.machine for pod in release.pods("node").values())
    with scenarios.scenario("a machine lost and back", "powerless", avoid=machine) as it:
        member = lead_alone(it, machine)
        before = it.pod(member)
        try:
            it.break_by(lambda: release.cluster.crash(machine))
            it.prove("leader", member, it.leader)
            it.clients.until_more(100)
        finally:
            release.cluster.start(machine)
        it.prove(
            "restarts and pod UID", life(before), lambda: (pod := release.pod(member)) and life(pod)
        )
        release.until(lambda: _is_up(scenarios, machine), f"{machine} is not Ready")
        it.until_steady()
        release.until_whole()


def lead_alone(it: Scenario, machine: str) -> str:
    """The node on this machine that leads; no other one there has a replica.

    Two may have: an operator may still take another machine for cordoned.
    """
    here = sorted(name for name, pod in it.release.pods("node").items() if pod.machine == machine)
    member = next((node for node in here if node in it.members()), here[0])
    lead(it, member)
    for other in here:
        if other != member and other in it.members():
            elsewhere = next(node for node in it.outsiders() if node not in here)
            ended = it.operate("Swap", oldNode=other, newNode=elsewhere)
            assert ended["phase"] == "Succeeded", ended
    it.until_leader(member)
    it.release.until(
        lambda: it.members().isdisjoint(set(here) - {member}), f"{machine} has two of {it.shard}"
    )
    return member


def life(pod: Pod) -> str:
    """Another one after a restart of its containers, and after that of the pod."""
    return f"{pod.restarts} of {pod.uid}"


def machine_of_one_node(scenarios: Scenarios) -> tuple[str, str]:
    nodes = scenarios.release.pods("node").values()
    counts = Counter(pod.machine for pod in nodes)
    return next((pod.machine, pod.name) for pod in nodes if counts[pod.machine] == 1)


def lead(it: Scenario, node: str) -> None:
    """Make this node the leader, a member first if it is none."""
    if node not in it.members():
        other = sorted(it.members() - {it.leader()})[0]
        assert it.operate("Swap", oldNode=other, newNode=node)["phase"] == "Succeeded"
        it.release.until(lambda: node in it.members(), f"{node} is no member")
    if it.leader() != node:
        assert it.operate("Promote", node=node)["phase"] == "Succeeded"
    it.until_leader(node)


def _uid(scenarios: Scenarios, pod: str) -> str:
    found = scenarios.release.pod(pod)
    return found.uid if found else ""


def _is_up(scenarios: Scenarios, machine: str) -> bool:
    body = scenarios.release.get("node", machine) or {"status": {"conditions": []}}
    conditions = {each["type"]: each["status"] for each in body["status"]["conditions"]}
    return conditions.get("Ready") == "True"
