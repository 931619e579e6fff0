"""The API server is killed and comes back: nobody who appends notices, and the operator goes on."""

from __future__ import annotations

from e2e.cluster.scenario import Scenarios


def test_the_api_server_is_restarted(scenarios: Scenarios):
    with scenarios.scenario("the API server restarted", "undisturbed") as it:
        leader = it.leader()
        before = it.release.cluster.kubernetes.kubectl("get", "--raw", "/metrics")
        it.break_by(it.release.cluster.restart_api_server)
        it.prove(
            "start of the API server",
            started(before),
            lambda: started(it.release.cluster.kubernetes.kubectl("get", "--raw", "/metrics")),
        )
        other = sorted(it.members() - {leader})[0]
        assert it.operate("Promote", node=other)["phase"] == "Succeeded"
        it.until_leader(other)


def started(metrics: str) -> str:
    lines = metrics.splitlines()
    return next(line.split()[1] for line in lines if line.startswith("process_start_time_seconds"))
