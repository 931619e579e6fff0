"""What systems are made of, without fetching any of it."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from bench.compare import programs
from bench.compare.programs import JARS, KAFKA, CannotBeHad


def test_every_jar_is_pinned_by_its_checksum():
    lines = JARS.read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w./-]+\.jar", line) for line in lines)
    names = [Path(line.split()[1]).name for line in lines]
    assert f"kafka_2.13-{KAFKA}.jar" in names
    assert len(names) == len(set(names))


def test_what_is_fetched_is_checked(tmp_path: Path):
    source = tmp_path / "source.jar"
    source.write_bytes(b"a jar")
    place = tmp_path / "kept.jar"
    with pytest.raises(CannotBeHad, match="checksum differs"):
        programs._fetch(source.as_uri(), "0" * 64, place)
    assert not place.exists()
    programs._fetch(source.as_uri(), sha256(b"a jar").hexdigest(), place)
    assert place.read_bytes() == b"a jar"


def test_what_cannot_be_fetched_is_one_line(tmp_path: Path):
    with pytest.raises(CannotBeHad, match=r"kept\.jar cannot be fetched"):
        programs._fetch((tmp_path / "none.jar").as_uri(), "", tmp_path / "kept.jar")


def test_without_java_there_is_no_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotBeHad, match="needs Java 17"):
        programs.java()
