"""How fast a replica that was away comes back, what that costs, and what the scrubber costs.

    python bench/catchup.py [DIR] [--mib 256] [--turns 3] [--json FILE] [--only NAME,...]

Three node processes with the default settings, a coordinator and the client, all on the same cores
and the same disk.  One factor at a time:

idle     a follower was away, nobody appends: against one TCP stream of as many bytes that are
         written and synced, MiB by MiB, in alternating turns after one that is not counted;
         medians of the ratios
busy     a follower was away, one client appends as fast as it can: how its lag falls, and what is
         left of the leader's throughput, against the same load with everybody in step
bytes    a follower misses 1, 10 and 50 % of a log: bytes of entries sent to it, as counted where
         they go onto the wire
scrub    processor time of an idle node that has a log at rest, with the scrubber and without
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop
from catchup_bare import bare_bytes_per_s
from catchup_cluster import NAMES, Cluster
from limit_load import RECORD_BYTES, Lane
from place import place
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

PARTS = ("idle", "busy", "bytes", "scrub")
BATCH_BYTES = 64 << 10
SMALL_BATCH_BYTES = 4 << 10
BUSY_BATCH_BYTES = 256 << 10
BUSY_WINDOW = 16
BUSY_AWAY_S = 6.0
BUSY_S = 4.0
LOOK_S = 0.1
MISSING_PERCENT = (1, 10, 50)
MISSING_OF_BYTES = 64 << 20
SCRUB_S = 10.0
WITHOUT_SCRUBBER = ("--scrub-core-percent", "0")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.  `met` is None for what has no aim."""

    name: str
    value: str
    aim: str = ""
    met: bool | None = None
    detail: str = ""


def figure(name: str, value: float, aim: str, met: bool, detail: str, shown: str = "") -> Figure:
    return Figure(name, shown or f"{value:.2f}", aim, met, detail)


# --- nobody appends ------------------------------------------------------------------------------


class Return(NamedTuple):
    """How a follower came back, and the processor time that it took both."""

    bytes_per_s: float
    leader_s: float
    follower_s: float


async def returned(cluster: Cluster, shard: str, size: int, batch_bytes: int) -> Return:
    """A follower was away for so many bytes."""
    leader = await cluster.leader(shard)
    away = next(name for name in NAMES if name != leader)
    await cluster.until_at(shard, away, await cluster.end(shard, leader))
    cluster.kill(away)
    end = await cluster.fill(shard, leader, size, batch_bytes)
    await cluster.start(away)
    nodes = cluster.nodes[leader], cluster.nodes[away]
    before = [node.cpu_s() for node in nodes]
    took = (await cluster.until_at(shard, away, end)).seconds
    spent = [node.cpu_s() - was for node, was in zip(nodes, before, strict=True)]
    return Return(size / took, *spent)


async def idle(directory: Path, size: int, turns: int) -> list[Figure]:
    """The yardstick's second file is new, but not the memory that its bytes pass through."""
    ours, used, new = [], [], []
    async with Cluster(directory / "idle").running() as cluster:
        await cluster.create("large")
        for turn in range(turns + 1):
            one = await returned(cluster, "large", size, BATCH_BYTES)
            bare = [
                await asyncio.to_thread(bare_bytes_per_s, directory, size, written_before)
                for written_before in (True, False)
            ]
            if turn:
                ours.append(one)
                used.append(bare[0])
                new.append(bare[1])
        await cluster.create("small")
        small = await returned(cluster, "small", size // 8, SMALL_BATCH_BYTES)
    against_new, detail = compared(ours, new)
    against_used, detail_used = compared(ours, used)
    per_gib = (1 << 30) / size
    leader_s, follower_s = (median(each) * per_gib for each in tuple(zip(*ours, strict=True))[1:])
    name = "catching up, idle leader, against TCP + write + fdatasync"
    met = against_new >= 0.6
    return [
        figure(f"{name} in a new file", against_new, "at least 0.6", met, detail),
        Figure("into blocks that were written before", f"{against_used:.2f}", detail=detail_used),
        Figure("processor time for a GiB, s", f"{leader_s:.2f} and {follower_s:.2f}",
               detail="leader and follower"),
        Figure("the same in batches of 4 KiB, MB/s", f"{small.bytes_per_s / 1e6:.0f}"),
    ]  # fmt: skip


def compared(ours: list[Return], bare: list[float]) -> tuple[float, str]:
    """The median of the ratios, and how it came about."""
    rates = [each.bytes_per_s for each in ours]
    ratios = [rate / other for rate, other in zip(rates, bare, strict=True)]
    turns = f"turns {min(ratios):.2f} to {max(ratios):.2f}"
    return median(ratios), f"{median(rates) / 1e6:.0f} of {median(bare) / 1e6:.0f} MB/s; {turns}"


# --- somebody does -------------------------------------------------------------------------------


class Flood:
    """One lane that appends without pause."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.records = BUSY_BATCH_BYTES // RECORD_BYTES
        self.goes_on = True
        lane.answered = self._answered
        lane.append(self.records, BUSY_WINDOW)

    def _answered(self, lane: Lane, count: int) -> None:
        if self.goes_on:
            lane.append(self.records, count)

    async def rate(self, seconds: float) -> float:
        """Records a second."""
        before, begun = self.lane.done, time.perf_counter()
        await asyncio.sleep(seconds)
        return (self.lane.done - before) * self.records / (time.perf_counter() - begun)


@asynccontextmanager
async def flooded(cluster: Cluster, shard: str, leader: str) -> AsyncIterator[Flood]:
    async with cluster.target(shard, leader).lanes(1) as lanes:
        flood = Flood(lanes[0])
        try:
            yield flood
        finally:
            flood.goes_on = False


class Look(NamedTuple):
    """How many records the follower is behind, and how many batches have been appended."""

    when_s: float
    lag: int
    appended: int


async def lag_while_catching_up(
    cluster: Cluster, shard: str, leader: str, away: str, flood: Flood
) -> list[Look]:
    """From when the follower begins to grow until it has caught up, or for a while."""
    looks: list[Look] = []
    first = -1
    begun = time.perf_counter()
    while time.perf_counter() - begun < BUSY_S * 4:
        end, at = await cluster.end(shard, leader), await cluster.end(shard, away)
        first = at if first < 0 else first
        if end >= 0 and at > first:
            looks.append(Look(time.perf_counter(), end - at, flood.lane.done))
            if end - at < 2 * BUSY_WINDOW * (BUSY_BATCH_BYTES // RECORD_BYTES):
                break
        await asyncio.sleep(LOOK_S)
    return looks


async def busy(directory: Path) -> list[Figure]:
    async with Cluster(directory / "busy").running() as cluster:
        leader = await cluster.create("busy")
        away = next(name for name in NAMES if name != leader)
        async with flooded(cluster, "busy", leader) as flood:
            await asyncio.sleep(1)
            in_step = await flood.rate(BUSY_S)
            cluster.kill(away)
            alone = await flood.rate(BUSY_AWAY_S)
            await cluster.start(away)
            looks = await lag_while_catching_up(cluster, "busy", leader, away, flood)
            again = await flood.rate(BUSY_S)
        moved = cluster.coordinator.shards["busy"].leader
    if moved is None or moved.node != leader or len(looks) < 2:
        return [Figure("catching up, busy leader", "-", detail="another leads: measure again")]
    first, last = looks[0], looks[-1]
    during_s = last.when_s - first.when_s
    during = (last.appended - first.appended) * flood.records / during_s
    steady = (in_step + again) / 2
    fell_per_s = (first.lag - last.lag) * RECORD_BYTES / 1e6 / during_s
    some = looks[:: len(looks) // 6 or 1]
    lags = ", ".join(f"{look.lag * RECORD_BYTES / 1e6:.0f}" for look in some)
    return [
        figure(
            "leader's throughput while a follower catches up, against all in step",
            during / steady,
            "at least 0.7",
            during >= 0.7 * steady,
            f"{during * RECORD_BYTES / 1e6:.0f} of {steady * RECORD_BYTES / 1e6:.0f} MB/s; "
            f"{alone * RECORD_BYTES / 1e6:.0f} with the follower away",
        ),
        figure(
            "lag of that follower, MB/s",
            fell_per_s,
            "falls",
            fell_per_s > 0,
            f"in {during_s:.1f} s: {lags} MB behind",
            f"{-fell_per_s:+.0f}",
        ),
    ]


# --- what is sent --------------------------------------------------------------------------------


async def sent_share(cluster: Cluster, shard: str, percent: int) -> float:
    """Of the bytes of a log, of which a follower misses so many percent."""
    leader = await cluster.create(shard)
    away = next(name for name in NAMES if name != leader)
    held = MISSING_OF_BYTES * (100 - percent) // 100
    end = await cluster.fill(shard, leader, held, BATCH_BYTES)
    await cluster.until_at(shard, away, end)
    cluster.kill(away)
    end = await cluster.fill(shard, leader, MISSING_OF_BYTES - held, BATCH_BYTES)
    name = "shardlog_entries_sent_bytes_total"
    before = cluster.metric(leader, name, shard=shard, follower=away)
    await cluster.start(away)
    await cluster.until_at(shard, away, end)
    sent = cluster.metric(leader, name, shard=shard, follower=away) - before
    return sent / cluster.metric(leader, "shardlog_log_bytes", shard=shard)


async def sent_bytes(directory: Path) -> list[Figure]:
    found = []
    async with Cluster(directory / "bytes").running() as cluster:
        for percent in MISSING_PERCENT:
            share = 100 * await sent_share(cluster, f"missing-{percent}", percent)
            found.append(
                figure(
                    f"sent to one who misses {percent} % of a log", share,
                    f"at most {percent + 1} %", share <= percent + 1, "", f"{share:.2f} %",
                )
            )  # fmt: skip
    return found


# --- the scrubber --------------------------------------------------------------------------------


async def idle_core(cluster: Cluster, shard: str, name: str, arguments: tuple[str, ...]) -> float:
    """The share of a core that an idle follower uses."""
    cluster.kill(name)
    cluster.arguments = arguments
    await cluster.start(name)
    await cluster.until_at(shard, name, await cluster.end(shard, await cluster.leader(shard)))
    await asyncio.sleep(2)
    before, begun = cluster.nodes[name].cpu_s(), time.perf_counter()
    await asyncio.sleep(SCRUB_S)
    return (cluster.nodes[name].cpu_s() - before) / (time.perf_counter() - begun)


async def scrub(directory: Path, size: int) -> list[Figure]:
    async with Cluster(directory / "scrub").running() as cluster:
        leader = await cluster.create("rest")
        name = next(each for each in NAMES if each != leader)
        end = await cluster.fill("rest", leader, size, BATCH_BYTES)
        await cluster.until_at("rest", name, end)
        without = await idle_core(cluster, "rest", name, WITHOUT_SCRUBBER)
        with_it = await idle_core(cluster, "rest", name, ())
    share = 100 * (with_it - without)
    return [
        figure(
            "the scrubber at its default rate, of one core", share, "at most 3 %", share <= 3,
            f"{100 * with_it:.1f} % with it, {100 * without:.1f} % without", f"{share:.1f} %",
        )
    ]  # fmt: skip


# --- all together --------------------------------------------------------------------------------


async def measured(directory: Path, size: int, turns: int, parts: tuple[str, ...]) -> list[Figure]:
    figures: list[Figure] = []
    for part in parts:
        for each in PARTS:
            (directory / each).mkdir(exist_ok=True)
        match part:
            case "idle":
                figures += await idle(directory, size, turns)
            case "busy":
                figures += await busy(directory)
            case "bytes":
                figures += await sent_bytes(directory)
            case "scrub":
                figures += await scrub(directory, size // 2)
    return figures


def show(figures: list[Figure], load: float) -> None:
    table = Table(box=SIMPLE_HEAD, title=f"catching up, load {load:.1f} at the start")
    for column in ("what", "measured", "should be", "", "detail"):
        table.add_column(column)
    for each in figures:
        met = "" if each.met is None else "ok" if each.met else "missed"
        table.add_row(each.name, each.value, each.aim, met, each.detail)
    Console(width=170).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("directory", nargs="?", type=place, default=".")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--only", default=",".join(PARTS))
    arguments = parser.parse_args()
    parts = tuple(arguments.only.split(","))
    if unknown := set(parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(PARTS)}")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as within:
        figures = uvloop.run(measured(Path(within), arguments.mib << 20, arguments.turns, parts))
    show(figures, load)
    if arguments.json:
        found = {"load": load, "figures": [asdict(each) for each in figures]}
        Path(arguments.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
