"""A snapshot against a plain copy of as many bytes, on the same disk, each with its syncs.

    python bench/snapshot.py --megabytes 1000

A cluster of three real nodes is filled; then, in turns, a file of the same size is copied and
synced, and a snapshot of everything is taken at a place of its own.  Both write new files, which
are deleted at once: a virtual machine is several times slower with memory that its host has taken
back, so each begins with what the other one has just left.  One more is taken where the first one
is, and one of a node's own copy.  With `--cold` what is copied, and what the nodes hold, is taken
out of the page cache before each, so that both come from the disk.  Beside the time stands the
processor time of this process and of the nodes, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import uvloop
from node_cluster import Cluster, cluster
from page_cache import forget_pages
from place import place

from shardlog.client import Client
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.creating import create
from shardlog.snapshots.destination import Destination

SHARD = "bench"
RECORD_BYTES = 1000
CALL_RECORDS = 1000
PIECE_BYTES = 16 << 20


async def fill(url: str, megabytes: int) -> None:
    values = [os.urandom(RECORD_BYTES) for _ in range(CALL_RECORDS)]
    async with Client(url) as client, client.producer(SHARD) as producer:
        for _ in range(megabytes):
            await producer.until_room()
            producer.send_many(values)


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float
    nodes_cpu_seconds: float


class Clock:
    """What passes, here and in the nodes."""

    def __init__(self, nodes: list[psutil.Process]) -> None:
        self._nodes = nodes

    def now(self) -> Cost:
        times = [node.cpu_times() for node in self._nodes]
        nodes = sum(each.user + each.system for each in times)
        return Cost(time.perf_counter(), time.process_time(), nodes)

    def since(self, begun: Cost) -> Cost:
        return Cost(*(now - then for now, then in zip(self.now(), begun, strict=True)))


def middle(costs: list[Cost]) -> Cost:
    return Cost(*(median(each) for each in zip(*costs, strict=True)))


def copied(clock: Clock, source: Path, target: Path) -> Cost:
    begun = clock.now()
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    return clock.since(begun)


def random_file(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for at in range(0, size, PIECE_BYTES):
            file.write(os.urandom(min(PIECE_BYTES, size - at)))


async def taken(clock: Clock, url: str, place: Path, node: str | None = None) -> tuple[Cost, int]:
    begun = clock.now()
    async with Client(url) as client:
        archive = Archive(Destination(f"file://{place}", make=True), SHARD)
        manifest = await create(client, archive, node=node)
    return clock.since(begun), manifest.size


def measured(made: Cluster, top: Path, megabytes: int, turns: int, cold: bool) -> None:
    run, url = uvloop.run, made.url
    clock = Clock([made.process(node) for node in made.shard(SHARD)["ensemble"]])
    run(fill(url, megabytes))
    _, size = run(taken(clock, url, top / "warm"))
    plain = top / "plain" / "file"
    plain.parent.mkdir()
    random_file(plain, size)
    os.sync()

    def both() -> tuple[Cost, Cost]:
        """A copy and a snapshot, with nothing left of either."""
        place = top / "turn"
        place.mkdir()
        if cold:
            forget_pages(plain.parent)
        copy = copied(clock, plain, place / "copy")
        (place / "copy").unlink()
        if cold:
            forget_pages(made.layout.directory)
        snapshot = run(taken(clock, url, place / "snapshots"))[0]
        shutil.rmtree(place)
        return copy, snapshot

    both()
    took = [both() for _ in range(turns)]
    again = run(taken(clock, url, top / "warm"))[0]
    own = run(taken(clock, url, top / "warm", "node-1"))[0]
    copy, snapshot = (middle(list(costs)) for costs in zip(*took, strict=True))
    print(f"{size / 1e6:,.0f} MB, medians of {turns} turns, load {os.getloadavg()[0]:.1f}")
    for name, cost in (
        ("plain copy with a sync", copy), ("snapshot", snapshot), ("the same again", again),
        ("a node's copy, compared", own),
    ):  # fmt: skip
        print(
            f"{name:24} {cost.seconds:8.2f} s {size / cost.seconds / 1e6:8.0f} MB/s"
            f" {cost.cpu_seconds:8.2f} s of CPU here, {cost.nodes_cpu_seconds:.2f} s in the nodes"
        )
    print(f"the snapshot has {copy.seconds / snapshot.seconds:.2f} of the speed of the copy")
    each = ", ".join(f"{copy.seconds:.2f} and {made.seconds:.2f}" for copy, made in took)
    print(f"copy and snapshot in each turn, s: {each}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="both come from the disk")
    parser.add_argument("--directory", type=place, default=tempfile.gettempdir())
    given = parser.parse_args()
    with cluster(given.directory) as made, tempfile.TemporaryDirectory(dir=given.directory) as top:
        made.create(SHARD)
        measured(made, Path(top), given.megabytes, given.turns, given.cold)


if __name__ == "__main__":
    main()
