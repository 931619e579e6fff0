"""The bare yardstick of `bench/limit.py`, by the names the figures have here."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from .plan import Plan

LIMIT = Path(__file__).parent.parent / "limit.py"
TIMEOUT_S = 300


class NoYardstick(Exception):  # noqa: N818 - named after what it is
    """It could not be taken; the message is one line for a person."""


def taken(directory: Path, plan: Plan) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=directory) as within:
        file = Path(within, "limit.json")
        try:
            done = subprocess.run(
                [sys.executable, LIMIT, within, "--no-parts", "--json", file,
                 "--turns", str(plan.yardstick_turns), "--seconds", str(plan.yardstick_s)],
                capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as failure:
            raise NoYardstick(f"no answer after {TIMEOUT_S} s") from failure
        if done.returncode:
            raise NoYardstick((done.stderr.strip().splitlines() or ["failed"])[-1])
        found = json.loads(file.read_text())
    return {
        "saturated_128": max(each["records_per_s"] for each in found["saturated"].values()),
        "independent": found["independent"]["records_per_s"],
        "lone_p50": found["lone"]["p50_ms"],
        "one_sync_p50": found["one_sync"]["p50_ms"],
        "offered_20000_p50": found["offered"]["p50_ms"],
        "offered_20000_p99": found["offered"]["p99_ms"],
    }


DRIFT_OF = ("saturated_128", "independent", "lone_p50")
"""The tail of a latency moves by itself too much to say anything about the machine."""
