"""What a cluster of real processes gives, against the bare yardstick in the same run.

    python bench/node.py [DIR] [--seconds 2] [--turns 5] [--kills 20] [--cuts 5] [--long]
                         [--json FILE] [--only NAME,...] [--connections 64] [--grows]

Three nodes with the coordinator, as `shardlog local up` starts them; the yardstick of `limit.py`;
and the client, all on the same cores and the same disk, with a sync before every acknowledgement.
In a turn every pattern is run against the yardstick and then against the cluster, so that whatever
else the machine does meets both; a ratio is the median of those of the turns.  "bare" is the very
load generator of the yardstick with a greeting and a session; "client" is `shardlog.client`.

The parts: append (saturated, independent, lone, offered), tail, kill, cut, and with --long, ten
saturated minutes.  See `node_failover.py`, `node_tail.py` and `node_steady.py` for the last four.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import node_load
import uvloop
from limit import BATCHES, CONNECTIONS, LONE_APPENDS, OFFERED_PER_S, Cores, OneSync, Yardstick
from limit import yardstick as yardstick_of
from limit_load import (
    Latency,
    Rate,
    Target,
    independent,
    latency_of,
    lone,
    offered,
    saturated,
)
from node_cluster import Cluster, Refused, cluster
from node_failover import SHARD as FAILOVER_SHARD
from node_failover import Failovers, failovers
from node_steady import Steady, steady
from node_tail import Tailing, tailing
from place import place
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

SHARD = "bench"
PARTS = ("append", "tail", "kill", "cut")
CLIENT_BATCHES = (256 << 10, 1 << 20)
LONE_ROUNDS = 3
READERS = 2
KEPT_BYTES = 512 << 20
"""A log that is written for long is trimmed as it grows, and goes round in the same files."""
LONG_S = 600
TAIL_SECONDS_FACTOR = 5
RESIDENT_MIB_MAX = 200
DISTURBED_MAX = 10
WIDTH = 150

T = TypeVar("T")
Pattern = Callable[[Target], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.  `met` is None for what has no aim."""

    name: str
    value: str
    aim: str = ""
    met: bool | None = None
    detail: str = ""


@dataclass(slots=True)
class Turns:
    """What each turn gave, by pattern; `bare`, `node` and `client` are lists of equal length."""

    saturated_bare: list[dict[int, Rate]] = field(default_factory=list)
    saturated_node: list[dict[int, Rate]] = field(default_factory=list)
    saturated_client: list[dict[int, Rate]] = field(default_factory=list)
    independent_bare: list[Rate] = field(default_factory=list)
    independent_node: list[Rate] = field(default_factory=list)
    lone_bare_s: list[float] = field(default_factory=list)
    lone_node_s: list[float] = field(default_factory=list)
    lone_client_s: list[float] = field(default_factory=list)
    one_sync_s: list[float] = field(default_factory=list)
    offered_bare: list[Latency] = field(default_factory=list)
    offered_node: list[Latency] = field(default_factory=list)
    offered_client: list[Latency] = field(default_factory=list)
    cores: dict[str, list[Cores]] = field(default_factory=dict)


# --- appending -----------------------------------------------------------------------------------


class Appending:
    """One turn after the other, of all ways to append."""

    def __init__(
        self, made: Cluster, bare: Yardstick, sync: OneSync, seconds: float, connections: int
    ) -> None:
        self.cluster = made
        self.bare = bare
        self.sync = sync
        self.seconds = seconds
        self.connections = connections
        self.turns = Turns()
        self.node = made.under_load(SHARD)
        self.disturbed = 0

    async def turn(self) -> None:
        self.node = self.cluster.under_load(SHARD)
        await self._saturated()
        await self._independent()
        await self._lone()
        await self._offered()

    async def _saturated(self) -> None:
        seconds, turns = self.seconds, self.turns
        bare, node, client = {}, {}, {}
        for size, window in BATCHES:
            pattern = partial(saturated, seconds=seconds, batch_bytes=size, window=window)
            bare[size] = await self._yardstick(f"saturated {size}", pattern)
            node[size] = await self._bare(f"saturated {size}", pattern)
            self.cluster.until_whole(SHARD)
        for size in CLIENT_BATCHES:
            flood = node_load.saturated(self.cluster.url, SHARD, seconds, size)
            client[size] = await self._client(f"saturated {size}", flood)
            self.cluster.until_whole(SHARD)
        turns.saturated_bare.append(bare)
        turns.saturated_node.append(node)
        turns.saturated_client.append(client)

    async def _independent(self) -> None:
        pattern = partial(independent, seconds=self.seconds, connections=self.connections)
        self.turns.independent_bare.append(await self._yardstick("independent", pattern))
        self.turns.independent_node.append(await self._bare("independent", pattern))

    async def _lone(self) -> None:
        turns, url = self.turns, self.cluster.url
        pattern = partial(lone, appends=LONE_APPENDS)
        for _ in range(LONE_ROUNDS):
            turns.lone_bare_s += await self._yardstick("lone", pattern)
            turns.one_sync_s += self.sync.seconds(LONE_APPENDS)
            turns.lone_node_s += await self._bare("lone", pattern)
            turns.one_sync_s += self.sync.seconds(LONE_APPENDS)
            appends = node_load.lone(url, SHARD, LONE_APPENDS)
            turns.lone_client_s += await self._client("lone", appends)

    async def _offered(self) -> None:
        turns, rate = self.turns, OFFERED_PER_S
        pattern = partial(offered, seconds=self.seconds, records_per_s=rate)
        turns.offered_bare.append(await self._yardstick("offered", pattern))
        turns.offered_node.append(await self._bare("offered", pattern))
        records = node_load.offered(self.cluster.url, SHARD, self.seconds, rate)
        turns.offered_client.append(await self._client("offered", records))

    async def _yardstick(self, name: str, pattern: Pattern[T]) -> T:
        return await self._watched(f"{name} yardstick", self.bare, pattern(self.bare.target))

    async def _bare(self, name: str, pattern: Pattern[T]) -> T:
        """Bare frames do not follow an election: what met one is measured again."""
        while True:
            try:
                node = self.node
                return await self._watched(f"{name} bare", node, pattern(node.target))
            except (Refused, TimeoutError, OSError) as failure:
                self.disturbed += 1
                if self.disturbed > DISTURBED_MAX:
                    raise RuntimeError(f"disturbed {self.disturbed} times") from failure
                self.node = self.cluster.under_load(SHARD)

    async def _client(self, name: str, pattern: Awaitable[T]) -> T:
        return await self._watched(f"{name} client", self.node, pattern)

    async def _watched(self, name: str, where: Yardstick, pattern: Awaitable[T]) -> T:
        result, used = await where.watched(pattern)
        self.turns.cores.setdefault(name, []).append(used)
        return result


def _best(rates: dict[int, Rate]) -> float:
    return max(each.records_per_s for each in rates.values())


def _ratio(ours: list[float], theirs: list[float]) -> tuple[float, str]:
    """The median, and the least and the most."""
    ratios = [each / other for each, other in zip(ours, theirs, strict=True)]
    return median(ratios), f"{min(ratios):.2f}-{max(ratios):.2f}"


def _cost_us(turns: Turns, name: str, rates: list[Rate]) -> float:
    """Processor time for a record, of all processes together; the median of the turns."""
    cores = turns.cores[name]
    costs = [u.all / max(rate.records_per_s, 1) * 1e6 for u, rate in zip(cores, rates, strict=True)]
    return median(costs)


def appending_figures(turns: Turns, connections: int) -> Iterator[Figure]:
    bare = [_best(each) for each in turns.saturated_bare]
    cheapest = _least_cost_us(turns, "yardstick", turns.saturated_bare)
    for name, found in (("client", turns.saturated_client), ("bare", turns.saturated_node)):
        rates = [_best(each) for each in found]
        ratio, spread = _ratio(rates, bare)
        cost = _least_cost_us(turns, name, found)
        detail = (
            f"{spread}; {median(rates):,.0f} of {median(bare):,.0f} records/s; "
            f"{cost:.2f} against {cheapest:.2f} us of all cores for a record"
        )
        yield Figure(f"saturated, {name}", f"{ratio:.2f}", ">= 0.5", ratio >= 0.5, detail)
    yield from _independent_figures(turns, connections)
    yield from _lone_figures(turns)
    yield from _offered_figures(turns)


def _least_cost_us(turns: Turns, name: str, found: list[dict[int, Rate]]) -> float:
    return min(
        _cost_us(turns, f"saturated {size} {name}", [each[size] for each in found])
        for size in found[0]
    )


def _independent_figures(turns: Turns, connections: int) -> Iterator[Figure]:
    ours = [each.records_per_s for each in turns.independent_node]
    theirs = [each.records_per_s for each in turns.independent_bare]
    ratio, spread = _ratio(ours, theirs)
    cost = _cost_us(turns, "independent bare", turns.independent_node)
    bare = _cost_us(turns, "independent yardstick", turns.independent_bare)
    detail = f"{spread}; {cost:.0f} against {bare:.0f} us of all cores for a record"
    yield Figure(f"{connections} connections", f"{ratio:.2f}", ">= 0.4", ratio >= 0.4, detail)
    rate = median(ours)
    detail = f"{min(ours):,.0f}-{max(ours):,.0f} of {median(theirs):,.0f}/s"
    title = f"{connections} connections, appends/s"
    yield Figure(title, f"{rate:,.0f}", ">= 15,000", rate >= 15e3, detail)


def _lone_figures(turns: Turns) -> Iterator[Figure]:
    sync = latency_of(turns.one_sync_s, sum(turns.one_sync_s))
    bare = latency_of(turns.lone_bare_s, sum(turns.lone_bare_s))
    aim = 2.5 * sync.p50_ms + 1
    for name, seconds in (("client", turns.lone_client_s), ("bare", turns.lone_node_s)):
        p50 = latency_of(seconds, sum(seconds)).p50_ms
        detail = f"one fdatasync {sync.p50_ms:.2f}, the yardstick {bare.p50_ms:.2f}"
        title = f"lone append, {name}, p50 ms"
        yield Figure(title, f"{p50:.2f}", f"<= {aim:.2f}", p50 <= aim, detail)


def _offered_figures(turns: Turns) -> Iterator[Figure]:
    theirs = median(each.p99_ms for each in turns.offered_bare)
    for name, found in (("client", turns.offered_client), ("bare", turns.offered_node)):
        p99 = median(each.p99_ms for each in found)
        p50 = median(each.p50_ms for each in found)
        detail = f"p50 {p50:.2f}; the yardstick's p99 {theirs:.2f}"
        title = f"{OFFERED_PER_S:,}/s offered, {name}, p99 ms"
        yield Figure(title, f"{p99:.2f}", "<= 10", p99 <= 10, detail)


# --- the other parts -----------------------------------------------------------------------------


def failover_figures(
    name: str, found: Failovers, median_s: float, worst_s: float | None
) -> Iterator[Figure]:
    middle, worst = found.median_s, found.worst_s
    detail = f"{len(found.gaps_s)} times"
    yield Figure(f"{name}, median s", f"{middle:.2f}", f"< {median_s:g}", middle < median_s, detail)
    aim = "" if worst_s is None else f"< {worst_s:g}"
    met = None if worst_s is None else worst < worst_s
    yield Figure(f"{name}, worst s", f"{worst:.2f}", aim, met)


def tailing_figures(found: Tailing) -> Iterator[Figure]:
    rates = " and ".join(f"{each:,.0f}" for each in found.readers_records_per_s)
    detail = f"{rates} of {found.writer_records_per_s:,.0f} records/s"
    met = found.ratio >= 0.95
    yield Figure("tailing reader / writer", f"{found.ratio:.2f}", ">= 0.95", met, detail)
    early, late = found.lag_first_half_ms, found.lag_second_half_ms
    grows = late > 2 * early + 100
    detail = f"{early:.0f} in the first half; worst {found.lag_worst_ms:.0f}"
    yield Figure("its lag, median ms", f"{late:.0f}", "not growing", not grows, detail)


def steady_figures(found: Steady) -> Iterator[Figure]:
    minutes = found.seconds / 60
    detail = f"{found.records_per_s:,.0f} records/s for {minutes:.1f} minutes"
    yield Figure("elections", f"{found.elections}", "0", found.elections == 0, detail)
    most = max(found.resident_mib_max.values())
    detail = ", ".join(f"{each:.0f}" for each in found.resident_mib_max.values())
    aim, met = f"<= {RESIDENT_MIB_MAX}", most <= RESIDENT_MIB_MAX
    yield Figure("memory of a node, MiB", f"{most:.0f}", aim, met, detail)


async def measure(given: argparse.Namespace) -> tuple[list[Figure], dict[str, object]]:
    """All parts that were asked for, one after the other; nobody is left running, come what may."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    figures: list[Figure] = []
    found: dict[str, object] = {"load": os.getloadavg()[0]}
    with ExitStack() as stack:
        within = stack.enter_context(tempfile.TemporaryDirectory(dir=given.directory))
        made = stack.enter_context(cluster(within))
        made.create(SHARD, None if given.grows else KEPT_BYTES)
        if "append" in given.only:
            with yardstick_of(within) as bare:
                sync = OneSync(f"{within}/one-sync")
                appending = Appending(made, bare, sync, given.seconds, given.connections)
                for _ in range(given.turns):
                    await appending.turn()
            found["append"] = asdict(appending.turns)
            figures += appending_figures(appending.turns, given.connections)
        if "tail" in given.only:
            seconds = TAIL_SECONDS_FACTOR * given.seconds
            tails = await tailing(made, SHARD, seconds, READERS)
            found["tail"] = asdict(tails)
            figures += tailing_figures(tails)
        if "kill" in given.only or "cut" in given.only:
            made.create(FAILOVER_SHARD)
        if "kill" in given.only:
            killed = await failovers(made, given.kills, signal.SIGKILL)
            found["kill"] = asdict(killed)
            figures += failover_figures("leader killed", killed, 1, 2)
        if "cut" in given.only:
            cut = await failovers(made, given.cuts, signal.SIGSTOP)
            found["cut"] = asdict(cut)
            figures += failover_figures("leader silent", cut, 3, None)
        if given.long:
            long = await steady(made, SHARD, given.long)
            found["steady"] = asdict(long)
            figures += steady_figures(long)
    return figures, found


def show(figures: list[Figure], load: float) -> None:
    title = f"three nodes against the bare yardstick, {os.cpu_count()} cores, load {load:.1f}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("figure", "measured", "aim", "", "detail"):
        table.add_column(heading, justify="right" if heading in ("measured", "aim") else "left")
    for each in figures:
        met = {True: "[green]met", False: "[red]not met", None: ""}[each.met]
        table.add_row(each.name, each.value, each.aim, met, each.detail)
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "directory", nargs="?", type=place, default=".", help="on the disk to be measured"
    )
    arguments.add_argument("--seconds", type=float, default=2, help="of each pattern in a turn")
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--cuts", type=int, default=5)
    arguments.add_argument("--long", type=float, nargs="?", const=LONG_S, metavar="SECONDS",
                           help="saturated for ten minutes, or so long")  # fmt: skip
    arguments.add_argument("--only", type=lambda text: text.split(","), default=PARTS,
                           help=f"some of {','.join(PARTS)}")  # fmt: skip
    arguments.add_argument("--connections", type=int, default=CONNECTIONS,
                           help="with one append in flight each")  # fmt: skip
    arguments.add_argument("--grows", action="store_true",
                           help="a log without a retention: every block of it is new")  # fmt: skip
    arguments.add_argument("--json", type=Path, metavar="FILE")
    given = arguments.parse_args()
    if unknown := set(given.only) - {*PARTS, "long", ""}:
        arguments.error(f"no such part: {', '.join(sorted(unknown))}")
    figures, found = uvloop.run(measure(given))
    show(figures, float(str(found["load"])))
    if given.json is not None:
        told = {"figures": [asdict(each) for each in figures], **found}
        given.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
