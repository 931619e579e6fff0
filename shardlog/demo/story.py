"""What happens in the demonstration, act by act, under a load that never stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from shardlog.client import FIRST, Client
from shardlog.demo.cluster import DemoCluster, Json
from shardlog.demo.ledger import Check, Findings
from shardlog.demo.load import RECORD_BYTES, Load

SHARD = "orders"
NODES = 5
REPLICAS, MORE_REPLICAS = 3, 5
STEADY_RATE_PER_S = 10_000
BACKLOG_RECORDS_MAX = 2_000
DEADLINE_MS = 30_000
LOOK_MS = 20
SHOW_MS = 100


class Screen(Protocol):
    """Whoever shows it."""

    def begin(self, title: str) -> None: ...

    def live(self, text: str) -> None: ...

    def done(self, detail: str) -> None: ...

    def failed(self, detail: str) -> None: ...


@dataclass
class Outcome:
    """`pauses_s`: the longest time without an acknowledged record, for each act that has one."""

    findings: Findings | None = None
    rate_per_s: float = 0.0
    pauses_s: dict[str, float] = field(default_factory=dict)


class Story:
    """One performance, on a cluster that runs."""

    def __init__(self, cluster: DemoCluster, screen: Screen, speed_s: float) -> None:
        self.outcome = Outcome()
        self._cluster = cluster
        self._screen = screen
        self._speed_s = speed_s
        self._check: Check | None = None

    async def play(self) -> None:
        try:
            await self._create()
            async with Client(self._cluster.url) as client:
                load = Load(client, SHARD, DEADLINE_MS)
                showing = asyncio.create_task(self._show(load))
                try:
                    await self._under_load(load)
                    await self._read_back(client, load)
                finally:
                    load.abandon()
                    showing.cancel()
        finally:
            await self._cluster.close()

    async def _under_load(self, load: Load) -> None:
        await self._append(load)
        await self._kill_leader(load)
        await self._scale(load, MORE_REPLICAS)
        await self._scale(load, REPLICAS)
        await self._swap(load)

    async def _show(self, load: Load) -> None:
        """How it goes, several times a second."""
        loop = asyncio.get_running_loop()
        before, since = 0, loop.time()
        while True:
            await asyncio.sleep(SHOW_MS / 1000)
            count, now = load.ledger.acknowledged, loop.time()
            rate, before, since = (count - before) / (now - since), count, now
            if self._check is not None:
                self._screen.live(f"{self._check.found:>9,} of {count:,}")
            else:
                ago_ms = load.pauses.now_s * 1000
                self._screen.live(
                    f"{count:>9,} acknowledged {rate:>8,.0f}/s, last {ago_ms:.0f} ms ago"
                )

    # --- the acts --------------------------------------------------------------------------------

    async def _create(self) -> None:
        self._screen.begin("create a shard")
        await self._cluster.ask("POST", "shards", {"name": SHARD, "replicas": REPLICAS})
        found = await self._cluster.until(SHARD, lambda it: True, "create")
        self._screen.done(f"{SHARD} on {_names(found['ensemble'])}; {found['leader']} leads")

    async def _append(self, load: Load) -> None:
        self._screen.begin("append at speed")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        load.start()
        await asyncio.sleep(self._speed_s)
        count = load.ledger.acknowledged
        rate = self.outcome.rate_per_s = count / (loop.time() - begun)
        load.rate_per_s = STEADY_RATE_PER_S
        await self._until(load, lambda: _backlog(load) < BACKLOG_RECORDS_MAX)
        megabytes = rate * RECORD_BYTES / 1e6
        self._screen.done(f"{count:,} records, {rate:,.0f}/s, {megabytes:.0f} MB/s")

    async def _kill_leader(self, load: Load) -> None:
        self._screen.begin("kill -9 the leader")
        before = await self._cluster.until(SHARD, lambda it: True, "failover")
        old = before["leader"]
        async with self._measured(load, "failover"):
            await self._cluster.kill(old)
            found = await self._cluster.until(
                SHARD, lambda it: it["epoch"] > before["epoch"], "failover"
            )
            await self._more_acknowledged(load)
        pause = self.outcome.pauses_s["failover"]
        self._screen.done(
            f"{old} died, {found['leader']} leads; no ack for [bold]{pause:.2f} s[/bold]"
        )
        self._screen.begin(f"{old} comes back")
        await self._cluster.until_in_step(SHARD, f"{old} comes back")
        self._screen.done("started again, and has all it missed")

    async def _scale(self, load: Load, replicas: int) -> None:
        found = await self._cluster.until(SHARD, lambda it: True, "scale")
        before = found["ensemble"]
        what = "expand" if replicas > len(before) else "contract"
        self._screen.begin(f"{what} {len(before)} to {replicas}")
        async with self._measured(load, what):
            await self._cluster.ask("PUT", f"shards/{SHARD}/replicas", {"replicas": replicas})
            found = await self._cluster.until(
                SHARD, lambda it: len(it["ensemble"]) == replicas, what
            )
            await self._more_acknowledged(load)
        changed = set(before) ^ set(found["ensemble"])
        verb = "joined" if replicas > len(before) else "left"
        self._screen.done(f"{_names(sorted(changed))} {verb}; {self._pause(what)}")

    async def _swap(self, load: Load) -> None:
        self._screen.begin("swap a node")
        found = await self._cluster.until(SHARD, lambda it: True, "swap")
        old = next(node for node in found["ensemble"] if node != found["leader"])
        new = next(node for node in self._cluster.nodes if node not in found["ensemble"])
        async with self._measured(load, "swap"):
            operation = {"operation": "swap", "old": old, "new": new}
            await self._cluster.ask("POST", f"shards/{SHARD}/operations", operation)
            await self._cluster.until(SHARD, lambda it: _swapped(it, old, new), "swap")
            await self._more_acknowledged(load)
        self._screen.done(f"{new} in place of {old}; {self._pause('swap')}")

    async def _read_back(self, client: Client, load: Load) -> None:
        self._screen.begin("read everything back")
        await load.stop()
        check = self._check = Check(load.ledger)
        async with client.batches(SHARD, FIRST, deadline_ms=DEADLINE_MS) as batches:
            async for batch in batches:
                check.take(batch.base_offset, batch.batch.values.all())
        findings = self.outcome.findings = check.findings()
        if findings.is_good:
            self._screen.done(f"{findings.found:,} records, each once, in order")
        else:
            self._screen.failed(f"{findings.found:,} records, [red]NOT AS ACKNOWLEDGED[/red]")

    # --- parts -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _measured(self, load: Load, name: str) -> AsyncIterator[None]:
        load.pauses.restart()
        yield
        self.outcome.pauses_s[name] = load.pauses.longest_s

    def _pause(self, name: str) -> str:
        return f"longest pause {self.outcome.pauses_s[name] * 1000:.0f} ms"

    async def _more_acknowledged(self, load: Load) -> None:
        """Until what is sent from now on has begun to be acknowledged."""
        sent = load.ledger.sent
        await self._until(load, lambda: load.ledger.acknowledged > sent)

    async def _until(self, load: Load, done: Callable[[], bool]) -> None:
        """The producer's deadline is ours too: when it gives up, the load has failed."""
        while not done():
            if load.failure is not None:
                raise load.failure
            await asyncio.sleep(LOOK_MS / 1000)


def _backlog(load: Load) -> int:
    return load.ledger.sent - load.ledger.acknowledged


def _swapped(found: Json, old: str, new: str) -> bool:
    return new in found["ensemble"] and old not in found["ensemble"]


def _names(nodes: list[str]) -> str:
    """`node-1, 2, 3`: short enough for a line."""
    return ", ".join([*nodes[:1], *(node.removeprefix("node-") for node in nodes[1:])])
