"""What end-to-end scenarios are judged by, and how they are told: without any Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.clients import judged
from e2e.cluster.report import Line, Report

MS = 1_000_000


def told(**changes: Any) -> dict[str, Any]:
    """Three records of one producer, of which the last waited, one read and one tail."""
    log = [[0, 0, 1], [1, 0, 2], [2, 0, 3]]
    history = {
        "sent": [
            [0, 1, 1 * MS, 2 * MS, 0],
            [0, 2, 3 * MS, 4 * MS, 1],
            [0, 3, 5 * MS, 1504 * MS, 2],
        ],
        "reads": [[2000 * MS, 2001 * MS, 0, 3, log]],
        "log": log,
        "tail": log,
        "failures": [],
    }
    return history | changes


def test_a_history_that_holds():
    found = judged(told())
    assert (found.records, found.reads, found.pause_ms) == (3, 1, 1500.0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"log": [[0, 0, 1], [1, 0, 2]], "tail": [[0, 0, 1], [1, 0, 2]]}, "record 3"),
        ({"log": [[0, 0, 1], [1, 0, 2], [2, 0, 3], [3, 0, 3]]}, "stands at"),
        ({"tail": [[0, 0, 1], [1, 0, 2]]}, "the tail"),
        ({"failures": ["DeadlineExceeded()"]}, "DeadlineExceeded"),
        ({"reads": []}, "nobody read"),
        ({"sent": [], "log": [], "tail": [], "reads": []}, "nobody sent"),
        ({"sent": [[0, 1, 1, 2, 0], [0, 2, 3, 4, 1], [0, 3, 5, None, None]]}, "never settled"),
    ],
)
def test_one_that_does_not(changes: dict[str, Any], why: str):
    with pytest.raises(AssertionError, match=why):
        judged(told(**changes))


def test_the_summary(tmp_path: Path):
    report = Report()
    report.passed(
        Line("the leader's pod is deleted", 500, 20, 812.0, 9.25, 1, 2, ("UID: a → b",), 30)
    )
    report.failed("a machine drained", "AssertionError: no leader", Path("/somewhere"))
    report.write(tmp_path)
    text = (tmp_path / "e2e-report.txt").read_text()
    assert "| the leader's pod is deleted | 500 | 20 | 0.81 s | 9.2 s | 1 | 2 |" in text
    assert "FAILED a machine drained: AssertionError: no leader (see /somewhere)" in text
    found = json.loads((tmp_path / "e2e-report.json").read_text())
    assert found["scenarios"][0]["proofs"] == ["UID: a → b"]
    assert found["failures"]["a machine drained"]["diagnostics"] == "/somewhere"
