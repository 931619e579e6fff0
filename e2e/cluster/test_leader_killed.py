"""The leader is killed -9: nothing is handed over, others elect, the container is restarted."""

from __future__ import annotations

from e2e.cluster.scenario import Scenarios


def test_the_leader_process_is_killed(scenarios: Scenarios):
    with scenarios.scenario("the leader's process is killed", "killed") as it:
        before = it.pod(it.leader())
        epoch = it.status()["epoch"]
        it.break_by(lambda: it.release.cluster.kill_processes(before.machine, before.uid))
        it.prove("restarts", before.restarts, lambda: it.pod(before.name).restarts)
        it.prove("epoch", epoch, lambda: it.status()["epoch"])
        it.until_steady()
        assert it.pod(before.name).uid == before.uid
