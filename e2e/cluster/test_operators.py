"""Operators are killed in the middle of changes, and two of them are always at work."""

from __future__ import annotations

from functools import partial

from e2e.cluster.scenario import Scenario, Scenarios


def kill_operators(it: Scenario) -> None:
    """All of them at once, -9."""
    for pod in it.release.pods("operator").values():
        it.release.cluster.kill_processes(pod.machine, pod.uid)


def restarts(it: Scenario) -> int:
    return sum(pod.restarts for pod in it.release.pods("operator").values())


def test_operators_are_killed_in_the_middle_of_a_change(scenarios: Scenarios):
    """While a shard grows, and while it shrinks."""
    with scenarios.scenario("operators killed in the middle of changes", "orphaned") as it:
        before = restarts(it)
        it.break_by(lambda: None)
        for replicas in (5, 3):
            count, epoch = len(it.members()), it.status()["epoch"]
            it.release.kubectl("scale", "shard/orphaned", f"--replicas={replicas}")
            it.release.until(partial(is_changing, it, epoch), "no change begins")
            kill_operators(it)
            it.until_steady(replicas)
            it.prove("members", count, lambda: len(it.members()))
        it.prove("restarts of operators", before, lambda: restarts(it))


def is_changing(it: Scenario, epoch: int) -> bool:
    """One is under way, or was since this epoch: there are two steps each way."""
    status = it.status()
    return bool(status.get("reconfiguration")) or status["epoch"] != epoch


def test_two_operators_at_once(scenarios: Scenarios):
    """One is killed; the other goes on meanwhile."""
    with scenarios.scenario("one of two operators killed", "paired") as it:
        first, second = it.release.pods("operator").values()
        assert first.is_ready
        assert second.is_ready
        it.break_by(lambda: it.release.cluster.kill_processes(first.machine, first.uid))
        it.release.kubectl("scale", "shard/paired", "--replicas=4")
        it.until_steady(4)
        it.prove("restarts", first.restarts, lambda: it.pod(first.name).restarts)
        assert it.pod(second.name).restarts == second.restarts
