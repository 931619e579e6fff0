"""The committed code is what protoc makes of etcd.proto."""

from pathlib import Path

from shardlog.metadata.proto.regenerate import GENERATED, regenerate


def test_regenerating_changes_nothing(tmp_path: Path):
    regenerate(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text() for path in GENERATED.glob("*_pb2.py*")}
    assert made == committed, "run `make proto`"
    assert len(made) == 2
