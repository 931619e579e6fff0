"""Our linearizability checker against porcupine, on the same histories and specification."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest
from random_histories import History, spoilt_history, true_history

from shardlog.sim.linearizability import check

PROGRAM = Path(__file__).parent / "porcupine"
HISTORIES = 1_000


def history_of_seed(seed: int) -> History:
    rng = Random(seed)
    history = true_history(rng, operations=rng.randint(5, 30), clients=rng.randint(2, 5))
    return spoilt_history(rng, history) if seed % 2 else history


def porcupine_verdicts(histories: list[History], directory: Path) -> list[str]:
    binary = directory / "porcupine"
    env = {**os.environ, "GOTOOLCHAIN": "local"}
    subprocess.run(["go", "build", "-o", binary, "."], cwd=PROGRAM, env=env, check=True)
    document = json.dumps([[asdict(op) for op in history] for history in histories])
    run = subprocess.run([binary], input=document, capture_output=True, text=True, check=True)
    return run.stdout.split()


@pytest.mark.needs("go")
def test_porcupine_gives_the_same_verdicts(tmp_path: Path) -> None:
    histories = [history_of_seed(seed) for seed in range(HISTORIES)]
    theirs = porcupine_verdicts(histories, tmp_path)
    ours = ["linearizable" if check(history) is None else "violation" for history in histories]

    assert len(theirs) == HISTORIES
    differ = [seed for seed in range(HISTORIES) if ours[seed] != theirs[seed]]
    assert not differ, f"history_of_seed({differ[0]}) and {len(differ) - 1} more are judged apart"
    assert min(Counter(ours)[verdict] for verdict in ("linearizable", "violation")) >= 300
    assert sum(op.reply is None for history in histories for op in history) >= 1_000
