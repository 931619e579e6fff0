"""ShardOperations: promote, swap, and abort of a swap that cannot end."""

from __future__ import annotations

from e2e.cluster.records import Records, records_of
from e2e.cluster.scenario import Scenario, Scenarios

TRIES_MAX = 5
"""A swap gives itself up after ten seconds, which may be before a busy machine has aborted it."""


def test_promote_swap_and_abort(scenarios: Scenarios):
    with scenarios.scenario("ShardOperations promote, swap, abort", "operated") as it:
        leader = it.leader()
        other = sorted(it.members() - {leader})[0]
        it.break_by(lambda: it.operate("Promote", node=other))
        it.prove("leader", leader, it.leader)

        before = sorted(it.members())
        outside = it.outsiders()[0]
        assert it.operate("Swap", oldNode=leader, newNode=outside)["phase"] == "Succeeded"
        it.prove("members", before, lambda: sorted(it.members()))
        with records_of(it.release) as records:
            assert records.until_rest("operated").nodes == {*before, outside} - {leader}
            assert any(aborted(it, records) for _ in range(TRIES_MAX))

        refused = it.operate("Abort")
        assert refused["phase"] == "Failed"
        assert "no reconfiguration" in refused["message"]
        it.until_steady()


def aborted(it: Scenario, records: Records) -> bool:
    """Whether a swap was; its new node is held, so that it stands still where it is."""
    before = records.until_rest(it.shard)
    old = sorted(before.nodes - {before.leader})[0]
    new = it.pod(sorted(set(it.release.pods("node")) - before.nodes)[0])
    held = it.release.cluster.hold({new.uid: new.machine})
    try:
        swap = it.ask("Swap", oldNode=old, newNode=new.name)
        it.release.until(lambda: records.of(it.shard).phase, "no swap begins")
        abort = it.operate("Abort")
        assert it.ended(swap)["phase"] == "Failed"
        assert not records.of(it.shard).phase
    finally:
        held.let_go()
    after = records.until_rest(it.shard)
    assert after.nodes == before.nodes
    if abort["phase"] == "Succeeded":
        it.proofs.append(f"swap of {old} for {new.name}: aborted in epoch {after.shard.epoch}")
    return bool(abort["phase"] == "Succeeded")
