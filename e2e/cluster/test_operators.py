"""Operators are killed in each phase of each change, and two of them are always at work.

A phase lasts for milliseconds.  So that it is met for certain all operators are held, and stepped
(`e2e/holding.py`) until the shard's record in etcd says the phase; there they are killed.  What the
record says after that is the proof: whoever could have written another one is dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from e2e.cluster.records import Record, Records, records_of
from e2e.cluster.release import PATIENCE_S
from e2e.cluster.scenario import Scenario, Scenarios
from e2e.holding import Held
from shardlog.protocol.messages import Operation

STEP_S = 0.003
"""Less than a write to etcd and a call to a leader take, which lie between any two phases."""
TRIES_MAX = 10
"""A machine that is busy can make a step longer than a phase; then the change is begun again."""
Begin = Callable[[], object]


def killed_in(it: Scenario, records: Records, phase: str, begin: Begin) -> Record | None:
    """Begin a change, kill all operators in this phase of it, and what was found then.

    None if the phase was passed by, before they were killed or by a write that was under way.
    """
    release = it.release
    release.until_whole()
    before = records.until_rest(it.shard)
    pods = release.pods("operator")
    held = release.cluster.hold({pod.uid: pod.machine for pod in pods.values()})
    try:
        begin()
        if not met(it, records, held, before, phase):
            return None
        it.break_by(held.kill)
        found = records.of(it.shard)
    finally:
        held.let_go()
    release.kubectl("delete", "pod", *pods, "--grace-period=0", "--force", "--wait=false")
    if found.phase != phase:
        return None
    uids = {pod.uid for pod in pods.values()}
    release.until(
        lambda: uids.isdisjoint(pod.uid for pod in release.pods("operator").values()),
        "operators are still there",
    )
    return found


def met(it: Scenario, records: Records, held: Held, before: Record, phase: str) -> bool:
    """Not if the change is over before: done; or given up, since being held counts as silence."""
    deadline = time.monotonic() + PATIENCE_S
    begun = False
    while time.monotonic() < deadline:
        held.step(STEP_S)
        found = records.of(it.shard)
        if found.phase == phase:
            return True
        begun = begun or bool(found.phase) or found.nodes != before.nodes
        if begun and not found.phase:
            return False
    raise AssertionError(f"{it.shard}: no change begins: {found}")


def tell(it: Scenario, struck: Record, after: Record) -> None:
    """What became of it; a change in COMMIT is completed as it was written, and never undone."""
    change = struck.shard.change
    if struck.phase == "Commit":
        assert change is not None
        assert set(after.shard.ensemble) == set(change.after), after
    operation = struck.operation
    assert operation is not None
    epochs = after.shard.epoch - struck.shard.epoch
    how = {0: "in the same epoch", 1: "in the next epoch"}.get(epochs, f"{epochs} epochs later")
    it.proofs.append(
        f"{operation.value.lower()} killed in {struck.phase}, version {struck.version} of the "
        f"record: completed {how}"
    )


def test_in_each_phase_of_a_swap(scenarios: Scenarios):
    with scenarios.scenario("operators killed in each phase of a swap", "swapped") as it:
        with records_of(it.release) as records:
            for phase in ("Joining", "Prepare", "Commit"):
                assert any(swap_killed_in(it, records, phase) for _ in range(TRIES_MAX)), phase
        it.until_steady()


def swap_killed_in(it: Scenario, records: Records, phase: str) -> bool:
    """Whether one was; if not, the swap is done, or was given up while operators were held."""
    before = records.until_rest(it.shard)
    old = sorted(before.nodes - {before.leader})[0]
    new = sorted(set(it.release.pods("node")) - before.nodes)[0]
    asked: list[str] = []
    struck = killed_in(
        it, records, phase, lambda: asked.append(it.ask("Swap", oldNode=old, newNode=new))
    )
    ended = it.ended(asked[0])
    after = records.until_rest(it.shard)
    if struck is None and "given up" in ended["message"]:
        assert after.nodes == before.nodes
        return False
    assert ended["phase"] == "Succeeded", ended
    assert after.nodes == before.nodes - {old} | {new}
    if struck is None:
        return False
    assert struck.operation is Operation.SWAP
    tell(it, struck, after)
    return True


def test_in_each_phase_of_scaling(scenarios: Scenarios):
    with scenarios.scenario("operators killed in each phase of scaling", "rescaled") as it:
        with records_of(it.release) as records:
            for replicas, phase in (
                (4, "Joining"), (3, "Prepare"), (4, "Prepare"), (3, "Commit"), (4, "Commit"),
            ):  # fmt: skip
                tries = (scaling_killed_in(it, records, replicas, phase) for _ in range(TRIES_MAX))
                assert any(tries), (replicas, phase)
        it.until_steady(4)


def scaling_killed_in(it: Scenario, records: Records, replicas: int, phase: str) -> bool:
    """Whether one was; if not, the shard has as many replicas as before."""

    def scale(count: int) -> None:
        it.release.kubectl("scale", f"shard/{it.shard}", f"--replicas={count}")

    before = len(records.until_rest(it.shard).nodes)
    struck = killed_in(it, records, phase, lambda: scale(replicas))
    it.until_steady(replicas)
    after = records.until_rest(it.shard)
    assert len(after.nodes) == replicas
    if struck is None:
        scale(before)
        it.until_steady(before)
        return False
    assert struck.operation is (Operation.EXPAND if replicas > before else Operation.CONTRACT)
    tell(it, struck, after)
    return True


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
