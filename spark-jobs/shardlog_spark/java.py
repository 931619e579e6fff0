"""Whether there is a Java that Spark can run with.

Spark itself finds out in a shell script, whose errors tell nobody what to do.  It takes JAVA_HOME
if that is set, and else the `java` of the path; so does this.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST = 17
NEEDED = f"Spark needs Java {OLDEST}: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
ANSWERS_IN_S = 60
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def why_no_java() -> str | None:
    """What is wrong, in one line; None if all is well, or if Java runs already."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return NEEDED
    try:
        ran = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=ANSWERS_IN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it does not answer"
        where = f", JAVA_HOME is {home}" if home else ""
        return f"{program}: {reason}{where}. {NEEDED}"
    matched = _VERSION.search(ran.stderr + ran.stdout)
    if matched is None:
        return f"{program} does not tell its version. {NEEDED}"
    if int(matched[1]) < OLDEST:
        return f"{program} is Java {matched[1]}. {NEEDED}"
    return None
