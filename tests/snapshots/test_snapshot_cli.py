"""`shardlog snapshot` on a cluster of real processes, and what can be wrong with what it gets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from local.commands import LocalCluster, local_cluster

from shardlog.cli import exit_codes
from snapshots.s3 import BUCKET

pytestmark = pytest.mark.xdist_group("local clusters")
RECORDS = [b"record %d" % number for number in range(1000)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.run("local up")
        cluster.run("shard create orders")
        cluster.append("orders", RECORDS)
        yield cluster


def test_from_create_to_restore(cluster: LocalCluster, place: str):
    made = cluster.json(f"snapshot create orders {place}")
    assert made["records"] == len(RECORDS)
    assert made["written_bytes"] == made["bytes"]
    again = cluster.json(f"snapshot create orders {place}")
    assert (again["written_bytes"], again["reused_bytes"]) == (0, made["bytes"])
    table = cluster.run(f"snapshot list orders {place}").stdout
    assert table.split()[:3] == ["ID", "NODE", "CREATED"]
    wide = cluster.run(f"snapshot list orders {place} -o wide").stdout
    assert len(wide.splitlines()) == 3
    listed = cluster.json(f"snapshot list orders {place}")
    assert [each["id"] for each in listed["snapshots"]] == [made["id"], again["id"]]
    verified = cluster.json(f"snapshot verify orders {place}")
    assert (verified["id"], verified["damaged"]) == (again["id"], [])
    shard = f"restored-{abs(hash(place))}"
    restored = cluster.json(
        f"snapshot restore {shard} {place} --from orders --snapshot {made['id']}"
    )
    assert (restored["records"], restored["moved"]) == (len(RECORDS), 0)
    assert cluster.read(shard) == RECORDS
    kept = cluster.json(f"snapshot create orders {place} --keep 1")
    assert kept["deleted"] == [made["id"], again["id"]]
    cluster.run(f"snapshot delete orders {place} --older-than 1d --yes")
    assert len(cluster.json(f"snapshot list orders {place}")["snapshots"]) == 1
    cluster.run(f"snapshot delete orders {place} {kept['id']} --yes")
    told = cluster.refused(f"snapshot list orders {place}", exit_codes.REFUSED)
    assert told == f"shardlog: there is no snapshot of orders in {place}"


def test_a_name_that_is_chosen_is_made_once(cluster: LocalCluster, tmp_path: Path):
    """As the operator asks for it: again after a crash, and it sees nothing but the report."""
    cluster.run("shard create named --replicas 1")
    cluster.append("named", RECORDS)
    place, report = f"file://{tmp_path}/snapshots", tmp_path / "report"
    line = f"snapshot create named {place} --id nightly.1 --report {report}"
    made = cluster.json(line)
    assert made["id"] == "nightly.1"
    told = json.loads(report.read_text())
    assert told["manifest"] == f"{place}/named/snapshots/nightly.1.json"
    assert (told["first"], told["end"], told["records"]) == (0, made["end"], len(RECORDS))
    assert (told["written_bytes"], told["reused_bytes"]) == (made["bytes"], 0)
    cluster.append("named", [b"later"])
    assert cluster.json(line)["end"] == made["end"]
    assert json.loads(report.read_text())["reused_bytes"] == made["bytes"]
    node = cluster.json("shard get named")["leader"]
    other = cluster.refused(f"{line} --node {node}", exit_codes.REFUSED)
    assert "snapshot nightly.1 is there, and is of what led" in other
    assert json.loads(report.read_text())["failed"] == "NotPossible"
    assert (
        "is no name"
        in cluster.run(f"snapshot create named {place} --id a/b", exit_codes.USAGE).stderr
    )
    deletes = f"snapshot delete named {place} nightly.1 --yes --report {report}"
    cluster.run(deletes)
    assert json.loads(report.read_text())["deleted"] == ["nightly.1"]
    cluster.refused(deletes, exit_codes.REFUSED)
    assert json.loads(report.read_text()) == {
        "failed": "NoSuchSnapshot", "message": "there is no snapshot nightly.1 of named",
    }  # fmt: skip


def test_a_report_names_what_went_wrong(cluster: LocalCluster, tmp_path: Path):
    report = tmp_path / "report"
    for shard, place, code, reason in (
        ("none", f"file://{tmp_path}/snapshots", exit_codes.REFUSED, "NoSuchShard"),
        ("orders", "foo://x", exit_codes.USAGE, "BadDestination"),
        ("orders", f"file://{tmp_path}/%2e%2e/x", exit_codes.USAGE, "BadDestination"),  # S-25
        ("orders", f"file://{tmp_path}/..", exit_codes.USAGE, "BadDestination"),
        ("orders", f"file://{report}", exit_codes.REFUSED, "DestinationRefused"),
    ):
        report.write_text("")
        told = cluster.refused(f"snapshot create {shard} {place} --report {report}", code)
        found = json.loads(report.read_text())
        assert found["failed"] == reason
        assert found["message"] in told
    nowhere = f"snapshot create orders file://{tmp_path}/snapshots --report {tmp_path}"
    cluster.run(nowhere, exit_codes.USAGE)


def test_each_node_by_name(cluster: LocalCluster, tmp_path: Path):
    place = f"file://{tmp_path}/snapshots"
    for number in (1, 2, 3):
        made = cluster.json(f"snapshot create orders {place} --node node-{number}")
        assert made["node"] == f"node-{number}"
        assert made["records"] == len(RECORDS)
    told = cluster.refused(f"snapshot create orders {place} --node node-9", exit_codes.USAGE)
    assert "there is no node 'node-9' of 'orders'" in told


def test_what_is_wrong_is_said_in_a_line(cluster: LocalCluster, tmp_path: Path):
    place = f"file://{tmp_path}/snapshots"
    refused = cluster.refused
    assert "is no URL" in refused("snapshot create orders nonsense", exit_codes.USAGE)
    assert "Unable to recognise" in refused("snapshot create orders foo://x", exit_codes.USAGE)
    assert "file:///DIRECTORY" in refused("snapshot list orders file://host/x", exit_codes.USAGE)
    assert "no such directory" in refused(f"snapshot list orders {place}", exit_codes.REFUSED)
    assert "there is no shard 'none'" in refused(
        f"snapshot create none {place}", exit_codes.REFUSED
    )
    assert "offset 99999 is out of range" in refused(
        f"snapshot create orders {place} --end 99999", exit_codes.REFUSED
    )
    assert "no snapshot of orders" in refused(f"snapshot verify orders {place}", exit_codes.REFUSED)
    assert "there is no snapshot x" in refused(
        f"snapshot restore new {place} --snapshot x", exit_codes.REFUSED
    )
    assert "there is no snapshot x" in refused(
        f"snapshot delete orders {place} x --yes", exit_codes.REFUSED
    )
    assert "--keep N" in refused(f"snapshot delete orders {place}", exit_codes.USAGE)
    made = cluster.json(f"snapshot create orders {place}")["id"]
    for which in (made, "--keep 0"):
        assert (
            "Delete 1 snapshot of orders? Nobody can be asked without a terminal: --yes"
            in refused(f"snapshot delete orders {place} {which}", exit_codes.USAGE)
        )
    assert "there is no snapshot of nosuch" in refused(
        f"snapshot list nosuch {place}", exit_codes.REFUSED
    )
    nobody = "--cluster shardlog://127.0.0.1:1 --timeout 0.3"
    assert "127.0.0.1:1" in refused(
        f"snapshot create orders {place} {nobody}", exit_codes.UNAVAILABLE
    )
    (tmp_path / "file").write_text("")
    assert "file" in refused(f"snapshot create orders file://{tmp_path}/file", exit_codes.REFUSED)


def test_a_shard_with_other_records_is_left_alone(cluster: LocalCluster, tmp_path: Path):
    place = f"file://{tmp_path}/snapshots"
    cluster.run(f"snapshot create orders {place}")
    cluster.run("shard create other --replicas 1")
    cluster.append("other", [b"x"])
    result = cluster.run(f"snapshot restore other {place} --from orders", exit_codes.REFUSED)
    assert "not those of this snapshot" in result.stderr.splitlines()[-1]
    assert cluster.read("other") == [b"x"]


def test_damage_is_told_with_its_place(cluster: LocalCluster, tmp_path: Path):
    place = f"file://{tmp_path}/snapshots"
    made = cluster.json(f"snapshot create orders {place}")
    (segment,) = (tmp_path / "snapshots" / "orders" / "segments").iterdir()
    whole = bytearray(segment.read_bytes())
    whole[2000] ^= 1
    segment.write_bytes(whole)
    result = cluster.run(f"snapshot verify orders {place}", exit_codes.DAMAGED)
    first, last = result.stderr.splitlines()
    assert str(segment) in first
    assert "at offset" in first
    assert last == "shardlog: 1 of 1 segments are damaged"
    told = cluster.run(f"snapshot restore copy {place} --from orders", exit_codes.DAMAGED).stderr
    assert str(segment) in told.splitlines()[-1]
    assert "copy is not complete: it has at least 0 of 1,000 records" in told
    manifest = tmp_path / "snapshots" / "orders" / "snapshots" / f"{made['id']}.json"
    manifest.write_bytes(manifest.read_bytes()[:100])
    told = cluster.refused(f"snapshot verify orders {place}", exit_codes.DAMAGED)
    assert f"{made['id']}.json is damaged" in told


def test_a_restore_from_a_damaged_snapshot_leaves_nothing_that_looks_whole(
    cluster: LocalCluster, tmp_path: Path
):
    place = f"file://{tmp_path}/snapshots"
    cluster.run("shard create long --replicas 1")
    for _ in range(3):  # a batch each, and a segment each
        cluster.append("long", [b"%d" % number + bytes(700) for number in range(100)])
    made = cluster.json(f"snapshot create long {place} --segment-bytes 65536")
    assert made["written_segments"] == 3
    middle = sorted((tmp_path / "snapshots" / "long" / "segments").iterdir())[1]
    whole = middle.read_bytes()
    restore = f"snapshot restore copied {place} --from long --replicas 1"

    middle.write_bytes(whole[:-1])
    told = cluster.refused(restore, exit_codes.DAMAGED)
    assert f"it has {len(whole) - 1} bytes, not {len(whole)}" in told
    middle.unlink()
    assert "it is missing" in cluster.refused(restore, exit_codes.DAMAGED)
    cluster.refused("shard get copied", exit_codes.REFUSED)

    middle.write_bytes(whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:])
    told = cluster.run(restore, exit_codes.DAMAGED).stderr.splitlines()[-1]
    assert str(middle) in told
    assert "copied is not complete: it has at least 100 of 300 records" in told
    assert "the same command goes on" in told
    check = f"{restore} --check"
    assert "copied is not complete: it has 100 of 300" in cluster.refused(check, exit_codes.REFUSED)

    middle.unlink()  # the remedy: the log still has it
    cluster.run(f"snapshot create long {place} --segment-bytes 65536")
    assert middle.read_bytes() == whole
    mended = cluster.json(restore)
    assert (mended["records"], mended["skipped"]) == (300, 100)
    assert cluster.read("copied") == cluster.read("long")
    assert "copied has all 300 records" in cluster.run(check).stdout


def test_a_damaged_manifest_of_an_older_snapshot_is_in_nobodys_way(
    cluster: LocalCluster, tmp_path: Path
):
    place = f"file://{tmp_path}/snapshots"
    old, new = (cluster.json(f"snapshot create orders {place}")["id"] for _ in range(2))
    manifests = tmp_path / "snapshots" / "orders" / "snapshots"
    (manifests / f"{old}.json").write_bytes(b"{")
    assert cluster.json(f"snapshot verify orders {place}")["id"] == new
    made = cluster.run(f"snapshot create orders {place} --keep 1")
    assert f"an earlier snapshot: {place}/orders/snapshots/{old}.json is damaged" in made.stderr
    assert f"{old}.json is damaged" in made.stderr.splitlines()[-1]
    assert "delete that one by its ID first" in made.stderr.splitlines()[-1]
    assert not (manifests / f"{new}.json").exists()
    newest = cluster.json(f"snapshot create orders {place}")["id"]
    (manifests / f"{newest}.json").write_bytes(b"{")
    told = cluster.refused(f"snapshot verify orders {place}", exit_codes.DAMAGED)
    assert f"{newest}.json is damaged" in told
    assert f"`shardlog snapshot delete orders URL {newest}` takes it away" in told
    cluster.run(f"snapshot delete orders {place} {old} {newest} --yes")
    cluster.run(f"snapshot verify orders {place}")


@pytest.mark.needs("go")
def test_what_an_endpoint_refuses(
    cluster: LocalCluster, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    told = cluster.refused("snapshot create orders s3://nothing/x", exit_codes.REFUSED)
    assert "s3://nothing/x" in told
    assert "NoSuchBucket" in told
    assert "NoSuchBucket" in cluster.refused(
        "snapshot list orders s3://nothing/x", exit_codes.REFUSED
    )
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    place = f"s3://{BUCKET}/x"
    for line in (f"snapshot create orders {place}", f"snapshot list orders {place}"):
        assert "SignatureDoesNotMatch (status 403)" in cluster.refused(line, exit_codes.REFUSED)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    told = cluster.refused(f"snapshot create orders {place}", exit_codes.UNAVAILABLE)
    assert place in told


def test_no_bar_where_there_is_no_terminal(cluster: LocalCluster, tmp_path: Path):
    result = cluster.run(f"snapshot create orders file://{tmp_path}/snapshots")
    assert result.stderr == ""
    assert os.linesep in result.stdout
