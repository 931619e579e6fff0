"""A seed is a bug report: it replays byte for byte, in any process."""

import hashlib
import io
import os
import subprocess
import sys

import pytest

from shardlog.sim.options import Options
from shardlog.sim.runner import run_options
from shardlog.sim.trace import Recorder

SEEDS = (1, 2, 3, 5, 8)


def trace_of(seed: int) -> str:
    out = io.StringIO()
    run_options(Options.of(seed), [Recorder(out)])
    return out.getvalue()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_bytes(seed: int):
    first = trace_of(seed)
    assert len(first.splitlines()) > 5000
    assert first == trace_of(seed)


def test_the_hash_seed_of_python_does_not_matter():
    script = (
        "import hashlib, io\n"
        "from shardlog.sim.options import Options\n"
        "from shardlog.sim.runner import run_options\n"
        "from shardlog.sim.trace import Recorder\n"
        f"for seed in {SEEDS}:\n"
        "    out = io.StringIO()\n"
        "    run_options(Options.of(seed), [Recorder(out)])\n"
        "    print(hashlib.sha256(out.getvalue().encode()).hexdigest())\n"
    )
    expected = [digest(trace_of(seed)) for seed in SEEDS]
    for hash_seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ran = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.split() == expected


def test_watching_changes_nothing():
    for seed in SEEDS:
        watched = run_options(Options.of(seed), [Recorder(io.StringIO())])
        alone = run_options(Options.of(seed))
        assert watched.statistics == alone.statistics
