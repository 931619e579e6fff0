"""Each rule taken away: the tests that carry its id must notice.

A mutant replaces functions of `protocol` for a whole session (see `conftest.py`), hence a process
of its own for each.  Only tests whose names carry one of the mutant's ids are run in it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardlog.sim.mutants import MUTANTS
from shardlog.sim.repair_mutants import BY_TEST

HERE = Path(__file__).parent
SOURCES = {path: path.read_text() for path in sorted(HERE.glob("test_*.py"))}
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--assert=plain", "--tb=line")
PLAIN = ("-p", "no:cacheprovider", "-p", "no:xdist")


def run(*ids: str, mutant: str = "") -> subprocess.CompletedProcess[str]:
    """A session of the tests that carry one of these ids."""
    names = [f"test_{each}_" for each in ids]
    files = [str(path) for path, text in SOURCES.items() if any(f"def {n}" in text for n in names)]
    assert files, f"no test carries any of {ids}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        (*PYTEST, *PLAIN, *files, "-k", " or ".join(names)),
        cwd=HERE.parents[1],
        env=kept | {"SHARDLOG_MUTANT": mutant},
        capture_output=True,
        text=True,
        check=False,
    )


ALL = MUTANTS | BY_TEST


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_test_of_its_id_fails_under(name):
    result = run(*ALL[name].ids, mutant=name)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr


def test_without_a_mutant_such_a_process_succeeds():
    result = run("V7")
    assert result.returncode == pytest.ExitCode.OK, result.stdout


def test_an_unknown_mutant_is_an_error():
    result = run("V7", mutant="no_such_rule")
    assert result.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
