"""The committed code is what protoc makes of the .proto files."""

import itertools
import re
from pathlib import Path

from shardlog.transport.proto.regenerate import GENERATED, SOURCES, regenerate


def test_regenerating_changes_nothing(tmp_path: Path):
    regenerate(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text() for path in GENERATED.glob("*_pb2.py*")}
    assert made == committed, "run `make proto`"
    assert len(made) == 2 * len(list(SOURCES.rglob("*.proto")))


def test_the_public_service_stands_alone():
    assert "import " not in re.sub(r"//.*", "", (SOURCES / "shardlog/v1/log.proto").read_text())


def test_fields_of_the_public_service_are_documented():
    """A field has a comment above it, or its name says it all."""
    plain = {"value", "name", "records", "batch", "shard", "body", "failure", "code", "headers",
             "content", "leader", "first_offset"}  # fmt: skip
    lines = (SOURCES / "shardlog/v1/log.proto").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        field = re.match(r"\s+(?:optional |repeated )?[\w.]+ (\w+) = \d+;", line)
        if field and field[1] not in plain:
            assert before.strip().startswith("//"), line
