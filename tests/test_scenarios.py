"""Protocol stories as transcripts: every file of `scenarios/` is played and compared.

`RECORD=1 pytest tests/test_scenarios.py` writes the transcripts anew; read the diff before you
commit it.
"""

import os
from pathlib import Path

import pytest
from scenarios.script import Scenario, play

from shardlog.sim.mutants import MUTANTS

HERE = Path(__file__).with_name("scenarios")
FILES = sorted(HERE.glob("*.txt"))
RECORD = os.environ.get("RECORD", "0") not in ("", "0")


def name_of(path: Path) -> str:
    return f"{path.stem} {Scenario.parse(path.read_text()).ids}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_scenario(path: Path):
    text = path.read_text()
    scenario = Scenario.parse(text)
    played = play(text)
    if RECORD:
        path.write_text(played.text)
    else:
        assert text == played.text
    if scenario.mutants:
        assert played.verdicts, f"nobody notices that {scenario.mutants} was taken away"
    else:
        assert played.verdicts == ()
    assert "\n> check\nchecker:" in played.text
    assert set(scenario.mutants) <= set(MUTANTS)


def test_trace_number_one_comes_first():
    assert [path.name[:19] for path in FILES[:2]] == ["01-trace-number-one"] * 2
