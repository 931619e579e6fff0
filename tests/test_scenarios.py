"""Protocol stories as transcripts: every file of `scenarios/` is played and compared.

`RECORD=1 pytest tests/test_scenarios.py` writes the transcripts anew; read the diff before you
commit it.
"""

import os
import re
from pathlib import Path

import pytest
from scenarios.script import Scenario, play

HERE = Path(__file__).with_name("scenarios")
FILES = sorted(HERE.glob("*.txt"))
RECORD = os.environ.get("RECORD", "0") not in ("", "0")
IDS = re.compile(r"([ONTMV]\d+|rule \d+)( ([ONTMV]\d+|rule \d+))*")


def name_of(path: Path) -> str:
    """The file, and the lines of PROTOCOL.md that it belongs to."""
    return f"{path.stem} {Scenario.parse(path.read_text()).ids}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_scenario(path: Path):
    text = path.read_text()
    scenario = Scenario.parse(text)
    assert IDS.fullmatch(scenario.ids)
    played = play(text)
    if RECORD:
        path.write_text(played.text)
    else:
        assert text == played.text
    assert played.text.count("\n> check\nchecker: ") >= 1
    if scenario.mutants:
        assert played.verdicts, f"nobody notices that {scenario.mutants} was taken away"
    else:
        assert played.verdicts == ()


def test_trace_number_one_comes_first():
    assert [path.name[:19] for path in FILES[:2]] == ["01-trace-number-one"] * 2


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("> dance", "no such command"),
        ("> crash A", "there is no A"),
        ('> start A B C\n> run until "pigs fly"', "that never happens"),
        ("limits: heartbeats=1\n> status", "no such limit: heartbeats"),
    ],
)
def test_a_bad_script_is_refused(script: str, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        play(f"Bad\n\nids: O1\n{script}\n")
