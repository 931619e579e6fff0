"""What the systems are made of: pinned, checked, and kept in the cache of this user.

Kafka is a list of jars from Maven Central with their checksums, and so is Spark's connector for it;
the load program is built from its Go module and named by what it is made of.  nats-server and etcd
are built by `e2e.binaries`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from hashlib import sha256
from pathlib import Path

from e2e.binaries import CannotBuild, cache

KAFKA = "4.3.1"
JAVA_MIN = 17
REPOSITORY = "https://repo1.maven.org/maven2"
DOWNLOAD_TIMEOUT_S = 60
BUILD_TIMEOUT_S = 900
JARS = Path(__file__).with_name("kafka-jars.txt")
SPARK_JARS = Path(__file__).with_name("spark-kafka-jars.txt")
"""Of the connector's last release; of the part that fetches its tokens the last one there is."""
LOAD = Path(__file__).with_name("load")


class CannotBeHad(Exception):  # noqa: N818 - named after what it is
    """A system is not there and cannot be made; the message is one line for a person."""


def load_program() -> Path:
    made_of = sha256()
    for path in sorted(LOAD.iterdir()):
        made_of.update(path.read_bytes())
    program = cache() / f"bench-load-{made_of.hexdigest()[:16]}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise CannotBeHad("the load program needs Go to be built: apt-get install golang")
    print("building the load program (once)", file=sys.stderr, flush=True)
    program.parent.mkdir(parents=True, exist_ok=True)
    making = program.with_suffix(f".{os.getpid()}")
    try:
        done = subprocess.run(
            ["go", "build", "-trimpath", "-o", making, "."],
            cwd=LOAD, env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as failure:
        raise CannotBeHad("the load program: go build takes too long") from failure
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise CannotBeHad(f"the load program: go build failed: {last[0]}")
    making.replace(program)
    return program


def kafka_class_path() -> str:
    """All jars, fetched once."""
    place = cache().parent / f"kafka-{KAFKA}"
    _jars(JARS, place)
    return f"{place}/*"


def spark_kafka_jars() -> str:
    """What `spark.jars` takes."""
    return ",".join(map(str, _jars(SPARK_JARS, cache().parent / "spark-kafka")))


def _jars(listed: Path, place: Path) -> list[Path]:
    place.mkdir(parents=True, exist_ok=True)
    found = []
    for line in listed.read_text().splitlines():
        checksum, path = line.split()
        jar = place / Path(path).name
        if not jar.exists():
            _fetch(f"{REPOSITORY}/{path}", checksum, jar)
        found.append(jar)
    return found


def _fetch(url: str, checksum: str, place: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:
            found = answer.read()
    except (OSError, urllib.error.URLError) as failure:
        raise CannotBeHad(f"{place.name} cannot be fetched: {failure}") from failure
    if sha256(found).hexdigest() != checksum:
        raise CannotBeHad(f"{place.name} is not what it was: its checksum differs")
    unfinished = place.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(found)
    unfinished.replace(place)


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise CannotBeHad(f"needs Java {JAVA_MIN}: apt-get install openjdk-17-jre-headless")
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_MIN:
        raise CannotBeHad(f"needs Java {JAVA_MIN} or newer")
    return found


def go_program(name: str) -> Path:
    from e2e.binaries import binary

    try:
        return binary(name)
    except CannotBuild as failure:
        raise CannotBeHad(str(failure)) from failure
