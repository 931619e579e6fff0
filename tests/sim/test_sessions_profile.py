"""Clients that use each other's sessions: nobody is told of an append that is not in the log."""

from shardlog.sim.runner import run_many


def test_S04_clients_that_use_each_others_sessions():
    summary = run_many(range(1, 9), jobs=1, keep_going=True, profile="sessions")
    assert summary.failures == []
    assert summary.statistics.sessions_lost > 0
