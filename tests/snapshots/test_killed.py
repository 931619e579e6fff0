"""`kill -9` in the middle of a snapshot: no manifest is left, and the next one uses the pieces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local.commands import SHARDLOG, LocalCluster, local_cluster

from shardlog.snapshots.archive import Archive
from shardlog.snapshots.marks import marks
from snapshots.logs import archive_at, assert_sound

pytestmark = pytest.mark.xdist_group("local clusters")
RECORDS = 40_000
PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.run("local up")
        cluster.run("shard create orders")
        cluster.append("orders", [b"%06d" % n + bytes(250) for n in range(RECORDS)])
        yield cluster


def has_mark(archive: Archive) -> bool:
    return bool(marks(archive))


def has_pieces(count: int) -> Callable[[Archive], bool]:
    return lambda archive: len(archive.pieces()) >= count


@pytest.mark.parametrize(
    ("moment", "pieces"),
    [(has_mark, 0), (has_pieces(1), 1), (has_pieces(10), 10), (has_pieces(30), 30)],
    ids=["marked", "first", "10th", "30th"],
)
def test_no_manifest_is_left_and_the_next_goes_on(
    tmp_path: Path, cluster: LocalCluster, moment: Callable[[Archive], bool], pieces: int
):
    place = f"file://{tmp_path}/snapshots"
    archive = archive_at(place)
    command = [SHARDLOG, "snapshot", "create", "orders", place, "--segment-bytes", "65536"]
    process = subprocess.Popen(command, env=cluster.environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + PATIENCE_S
    while not moment(archive):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert archive.ids() == []
    left = archive.pieces()
    assert len(left) >= pieces

    made = cluster.json(f"snapshot create orders {place} --segment-bytes 65536")
    assert made["reused_segments"] == len(left)
    assert made["reused_bytes"] + made["written_bytes"] == made["bytes"]
    (manifest,) = archive.manifests()
    assert manifest.records == RECORDS
    assert_sound(archive, manifest)
    named = {segment.name for segment in manifest.segments}
    collected = cluster.json(f"snapshot delete orders {place} --keep 1 --yes")
    assert collected["deleted"] == []
    assert {piece.name for piece in archive.pieces()} == named


def test_a_cluster_that_goes_away_in_the_middle(tmp_path: Path, cluster: LocalCluster):
    """One line, status 8, no manifest; and the next one goes on when it is back."""
    place = f"file://{tmp_path}/snapshots"
    archive = archive_at(place)
    command = [SHARDLOG, "snapshot", "create", "orders", place, "--segment-bytes", "65536",
               "--timeout", "3"]  # fmt: skip
    process = subprocess.Popen(
        command, env=cluster.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + PATIENCE_S
    while not archive.pieces():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    nodes = [f"node-{number}" for number in (1, 2, 3)]
    for node in nodes:
        pid = cluster.pid(node)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    try:
        output, told = process.communicate(timeout=PATIENCE_S)
    finally:
        for node in nodes:
            pid = cluster.pid(node)
            assert pid is not None
            os.kill(pid, signal.SIGCONT)
    assert process.returncode == 8, (output, told)
    (line,) = told.splitlines()
    assert line.startswith("shardlog: ")
    assert "orders" in line
    assert archive.ids() == []
    assert marks(archive) == []
    cluster.until("orders", lambda it: it["status"] == "STEADY" and it["leader"])
    assert (
        json.loads(
            cluster.run(f"snapshot create orders {place} --segment-bytes 65536 -o json").stdout
        )["records"]
        == RECORDS
    )
