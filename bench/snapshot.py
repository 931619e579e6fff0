"""A snapshot against a plain copy of as many bytes, on the same disk, each with its syncs.

    python bench/snapshot.py --megabytes 1000

A cluster of three real nodes is filled; then, in turns, a file of the same size is copied and
synced, and a snapshot of everything is taken at a place of its own.  One more is taken where the
last one is, and one of a node's own copy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop
from node_cluster import cluster

from shardlog.client import Client
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.creating import create
from shardlog.snapshots.destination import Destination

SHARD = "bench"
RECORD_BYTES = 1000
CALL_RECORDS = 1000


async def fill(url: str, megabytes: int) -> None:
    values = [os.urandom(RECORD_BYTES) for _ in range(CALL_RECORDS)]
    async with Client(url) as client, client.producer(SHARD) as producer:
        for _ in range(megabytes):
            await producer.until_room()
            producer.send_many(values)


def copied(source: Path, target: Path) -> float:
    begun = time.perf_counter()
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    taken = time.perf_counter() - begun
    target.unlink()
    return taken


async def taken(url: str, place: Path, node: str | None = None) -> tuple[float, int]:
    begun = time.perf_counter()
    async with Client(url) as client:
        archive = Archive(Destination(f"file://{place}", make=True), SHARD)
        manifest = await create(client, archive, node=node)
    return time.perf_counter() - begun, manifest.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--directory", default=tempfile.gettempdir())
    given = parser.parse_args()
    with cluster(given.directory) as made, tempfile.TemporaryDirectory(dir=given.directory) as top:
        made.create(SHARD)
        run = uvloop.run
        run(fill(made.url, given.megabytes))
        _, size = run(taken(made.url, Path(top, "warm")))
        plain = Path(top, "plain")
        plain.write_bytes(os.urandom(size))
        copies, snapshots = [], []
        for turn in range(given.turns):
            copies.append(copied(plain, Path(top, "copy")))
            snapshots.append(run(taken(made.url, Path(top, f"turn-{turn}")))[0])
        again = run(taken(made.url, Path(top, "warm")))[0]
        own = run(taken(made.url, Path(top, "warm"), "node-1"))[0]
    copy, snapshot = median(copies), median(snapshots)
    print(f"{size / 1e6:,.0f} MB, medians of {given.turns} turns")
    print(f"plain copy with a sync   {copy:8.2f} s {size / copy / 1e6:8.0f} MB/s")
    print(f"snapshot                 {snapshot:8.2f} s {size / snapshot / 1e6:8.0f} MB/s"
          f"   {copy / snapshot:.2f} of the copy")  # fmt: skip
    print(f"the same again           {again:8.2f} s")
    print(f"a node's copy, compared  {own:8.2f} s {size / own / 1e6:8.0f} MB/s")


if __name__ == "__main__":
    main()
