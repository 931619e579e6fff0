"""`shardlog storage inspect` and `verify` on what is well, and on what is no replica."""

import json
from pathlib import Path

import pytest

from shardlog.checksum import sum_of
from shardlog.cli import exit_codes, storage_tables
from shardlog.protocol.effects import TrimLog
from shardlog.storage.failures import ReadOnlyVolume, StorageFailure
from shardlog.storage.inspection import Inspection, ReadOnlyFiles
from shardlog.storage.real_files import RealFiles
from shardlog.storage.superblock import STRIDE_BYTES
from storage.replicas import (
    BODY_START,
    ENTRIES,
    FIRST,
    SECOND,
    THIRD,
    Damage,
    entry_at,
    flip,
    make,
    open_store,
    perform,
    put,
    run,
)


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    return make(tmp_path / "orders")


# --- well ----------------------------------------------------------------------------------------


def test_verify_healthy(replica: Path):
    result = run("verify", replica)
    assert result.exit_code == exit_codes.OK
    length = sum(len(entry.body) for entry in ENTRIES)
    assert result.stdout == (
        f"{replica}: 1 replica, 3 segments, 20 entries, {length} bytes of bodies: all is well\n"
    )
    assert result.stderr == ""


def test_inspect_healthy(replica: Path):
    result = run("inspect", replica)
    assert result.exit_code == exit_codes.OK
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["shard", "orders"] in lines
    assert ["node", "n1", "#7"] in lines
    assert ["history", "[1@0]"] in lines
    assert ["0", "CHECKPOINT", "0", "0", "0"] in lines
    assert ["2", str(2 * STRIDE_BYTES), "6", "older"] in lines
    assert [FIRST, "0", "15", "8", str(entry_at(8)), "8192", "ok"] in lines
    assert "findings" not in result.stdout


def test_inspect_lists_entries(replica: Path):
    shown = run("inspect", replica, "--entries").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "1 0 1 EPOCH_START 0 0 2023-11-14T22:13:20.000Z 40 present" in lines
    assert "1 37 2 DATA 0 19 2023-11-14T22:13:20.019Z 59 present" in lines


def test_inspect_json(replica: Path):
    (told,) = json.loads(run("inspect", replica, "-o", "json", "--entries").stdout)["replicas"]
    assert (told["shard"], told["node"], told["incarnation"]) == ("orders", "n1", "7")
    assert (told["epoch"], told["history"]) == (1, [{"epoch": 1, "first": 0}])
    assert [place["state"] for place in told["superblock"]] == ["newest"] * 2 + ["older"] * 2
    assert [each["file"] for each in told["segments"]] == [FIRST, SECOND, THIRD]
    assert [each["entries"] for each in told["segments"]] == [8, 8, 4]
    assert told["commit_context"]["end"] == ENTRIES[17].header.end
    assert told["commit_context"]["checksum"] == f"{ENTRIES[17].header.checksum:016x}"
    assert [each["offset"] for each in told["entries"]] == [e.header.base for e in ENTRIES]
    assert {each["state"] for each in told["entries"]} == {"present"}
    assert told["findings"] == []


def test_json_fields_are_stable(replica: Path):
    """Fields may be added to this test, never taken away."""
    (told,) = json.loads(run("inspect", replica, "-o", "json", "--entries").stdout)["replicas"]
    assert set(told) == {
        "boundary", "commit", "commit_context", "cut_to", "directory", "entries", "epoch",
        "findings", "first", "format_version", "history", "in_doubt", "incarnation", "led",
        "lineage", "node", "records", "segments", "segments_made", "sessions", "sessions_at",
        "shard", "superblock", "syncing",
    }  # fmt: skip
    assert set(told["entries"][0]) == {
        "body_bytes", "checksum", "count", "epoch", "file", "kind", "offset", "parent", "position",
        "request", "session", "state", "timestamp_ms",
    }  # fmt: skip
    assert set(told["segments"][0]) == {
        "end", "entries", "file", "first", "size_bytes", "slots", "state", "used_bytes",
    }  # fmt: skip
    flip(replica / FIRST, entry_at(2) + 80)
    told = json.loads(run("verify", replica, "-o", "json").stdout)
    assert set(told) == {
        "body_bytes", "damaged", "entries", "findings", "replicas", "segments",
    }  # fmt: skip
    assert set(told["findings"][0]) == {"consequence", "damage", "file", "position", "what"}


def test_every_documented_field_and_no_other(replica: Path):
    text = (Path(__file__).parents[2] / "docs" / "storage-commands.md").read_text()
    (told,) = json.loads(run("inspect", replica, "-o", "json", "--entries").stdout)["replicas"]
    for name in [*told, *told["entries"][0], *told["segments"][0]]:
        assert f"`{name}`" in text, name


def test_a_volume_with_several(tmp_path: Path):
    make(tmp_path / "a", 1)
    make(tmp_path / "b", 9)
    (tmp_path / "c").mkdir()
    (tmp_path / "file").write_text("not a directory")
    assert "2 replicas, 3 segments, 10 entries" in run("verify", tmp_path).stdout
    flip(tmp_path / "b" / FIRST, entry_at(3) + 80)
    result = run("verify", f"{tmp_path}/")
    assert result.exit_code == exit_codes.DAMAGED
    assert result.stdout.startswith(f"{tmp_path}/b/{FIRST}:")
    told = json.loads(run("inspect", tmp_path, "-o", "json").stdout)["replicas"]
    assert [each["directory"] for each in told] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert run("inspect", tmp_path).stdout.count("control records") == 2


def test_trimmed(replica: Path):
    store = open_store(replica)
    perform(store, TrimLog(ENTRIES[9].header.end, ENTRIES[9].header.checksum))
    assert not (replica / FIRST).exists()
    put(replica / SECOND, BODY_START, b"nobody will miss this")
    result = run("verify", replica)
    assert result.exit_code == exit_codes.OK
    assert "all is well" in result.stdout


def test_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    storage_tables.show("segments", "file size> state", [("[a]", "8192", "damaged")])
    told = capsys.readouterr().out
    assert "segments" in told
    assert "[a]" in told
    assert "─" in told


# --- not a replica -------------------------------------------------------------------------------


def missing(path: Path) -> None:
    pass


def a_file(path: Path) -> None:
    path.write_text("a file")


def empty(path: Path) -> None:
    path.mkdir()


def foreign(path: Path) -> None:
    path.mkdir()
    (path / "data.db").write_bytes(b"somebody else's")
    (path / "a.segment").write_bytes(b"somebody else's")


def other_version(path: Path) -> None:
    make(path, 1)
    data = bytearray((path / "superblock").read_bytes())
    for start in range(0, len(data), STRIDE_BYTES):
        length = int.from_bytes(data[start + 24 : start + 32], "little")
        data[start + 12] = 9
        summed = sum_of(data[start + 12 : start + 32 + length])
        data[start + 8 : start + 12] = summed.to_bytes(4, "little")
    (path / "superblock").write_bytes(data)


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize(
    ("made", "why"),
    [
        (missing, "no such directory"),
        (a_file, "not a directory"),
        (empty, "not a replica's directory"),
        (foreign, "not a replica's directory"),
        (other_version, "format version 9, this is 1"),
    ],
)
def test_not_a_replica(tmp_path: Path, command: str, made: Damage, why: str):
    path = tmp_path / "there"
    made(path)
    result = run(command, path)
    assert result.exit_code == exit_codes.USAGE
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"shardlog: {path}")
    assert why in result.stderr


# --- nothing is changed --------------------------------------------------------------------------


def test_nothing_can_be_written_through_an_inspection(replica: Path):
    files = ReadOnlyFiles(RealFiles())
    path = f"{replica}/{FIRST}"
    for change in (files.create, files.make_directory, files.remove, files.sync_directory):
        with pytest.raises(ReadOnlyVolume):
            change(path)
    with pytest.raises(ReadOnlyVolume):
        files.rename(path, f"{path}.old")
    with pytest.raises(StorageFailure):
        files.open(path).write(0, [b"x"])


def test_an_inspection_leaves_no_file_open(replica: Path):
    inspection = Inspection(RealFiles(), str(replica))
    assert not inspection.handles._open
    list(inspection.scan(bodies=True))
    assert inspection.handles._open
    inspection.close()
    assert not inspection.handles._open
