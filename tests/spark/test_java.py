"""A Java that is missing or too old is told in one line, with how to get another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).parents[2] / "spark-jobs" / "jobs" / "export.py"
OLD = """#!/bin/sh
echo 'openjdk version "11.0.22" 2024-01-16' >&2
"""


@pytest.mark.parametrize("how", ["missing", "old", "silent"])
def test_a_java_home_that_spark_cannot_use(tmp_path: Path, how: str):
    home = tmp_path / "java"
    program = home / "bin" / "java"
    if how != "missing":
        program.parent.mkdir(parents=True)
        program.write_text(OLD if how == "old" else "#!/bin/sh\n")
        program.chmod(0o755)
    result = subprocess.run(
        [sys.executable, JOB, "--snapshots", f"file://{tmp_path}", "--shard", "x", "--out", "y"],
        env={**os.environ, "JAVA_HOME": str(home)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    wanted = {
        "missing": f"No such file or directory, JAVA_HOME is {home}",
        "old": "is Java 11",
        "silent": "does not tell its version",
    }
    assert line.startswith(f"export: {program}")
    assert wanted[how] in line
    assert line.endswith(
        "Spark needs Java 17: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    )
