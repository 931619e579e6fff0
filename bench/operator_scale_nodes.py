"""Replica machines of some nodes in one process, each node behind a gRPC server of its own.

Part of `operator_kube`.  The machines are those of a node, and so is the control plane; disks are
in memory and perfect, and what one replica says to another is handed over at once.  A line of JSON
on the standard input asks for appends, one line answers.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import uvloop
from bench_key import KEY

from shardlog.checksum import seal
from shardlog.protocol.effects import Event, Limits, Received, Send, SendEntries, Sync, Synced, Tick
from shardlog.protocol.entry import entry_of
from shardlog.protocol.messages import Entries, Envelope, Register, Trim
from shardlog.protocol.mood import Mood, mood_of
from shardlog.protocol.replica import Replica
from shardlog.transport.control import ControlLimits, ControlServer
from shardlog.transport.control_calls import NewsRequest, NodeNews
from shardlog.transport.failures import Rejected

TICK_S = 0.05
CALL_TIMEOUT_S = 5.0
LIMITS = Limits(heartbeat_ms=100, rest_ms=500, quorum_silence_ms=2000)
"""Leaders beat seldom: this is about the operator, and a busy machine must not look like losses."""


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Node:
    """One node: its replicas by shard, and what has changed on it."""

    def __init__(self, name: str, machines: Machines) -> None:
        self.name = name
        self.machines = machines
        self.replicas: dict[str, Replica] = {}
        self.life = secrets.randbits(62) + 1
        self.number = 0
        self.moods: dict[str, Mood] = {}
        self.changed: dict[str, int] = {}
        self.server = ControlServer(
            self.handle, _no_snapshots, ControlLimits(), None, self.answer_at_once, self.tell_news,
            key=KEY, name=name,
        )  # fmt: skip

    async def handle(self, envelope: Envelope, _: object) -> Envelope | None:
        if envelope.dst != self.name:
            raise Rejected(f"this is {self.name}, not {envelope.dst}")
        if isinstance(envelope.message, Trim):
            self.machines.arrive(envelope)
            return None
        async with asyncio.timeout(CALL_TIMEOUT_S):
            found = await self.machines.ask(envelope)
        return replace(found, dst=envelope.src)

    def answer_at_once(self, envelope: Envelope) -> Envelope | None:
        asked = self.machines.ask(envelope)
        return replace(asked.result(), dst=envelope.src) if asked.done() else None

    def tell_news(self, asked: NewsRequest) -> NodeNews:
        clock_ms = now_ms()
        moods = {shard: mood_of(each, clock_ms) for shard, each in self.replicas.items()}
        if moods != self.moods:
            self.number += 1
            for shard, mood in moods.items():
                if self.moods.get(shard) != mood:
                    self.changed[shard] = self.number
            self.moods = moods
        since = asked.since if asked.life == self.life else 0
        news = tuple([shard for shard, number in self.changed.items() if number > since])
        return NodeNews(self.life, self.number, news)


class Machines:
    """All nodes of this process; what is for somebody else is for a call that waits."""

    def __init__(self, names: list[str]) -> None:
        self.nodes = {name: Node(name, self) for name in names}
        self._asked: dict[str, asyncio.Future[Envelope]] = {}
        self._calls = 0

    def ask(self, envelope: Envelope) -> asyncio.Future[Envelope]:
        self._calls += 1
        name = f"call {self._calls}"
        answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self._asked[name] = answer
        answer.add_done_callback(lambda _: self._asked.pop(name, None))
        self.arrive(replace(envelope, src=name, src_incarnation=0))
        return answer

    def arrive(self, envelope: Envelope) -> None:
        answer = self._asked.get(envelope.dst)
        if answer is not None:
            if not answer.done():
                answer.set_result(envelope)
            return
        node = self.nodes.get(envelope.dst)
        if node is None:
            return
        replica = node.replicas.get(envelope.shard)
        if replica is None:
            replica = Replica(envelope.shard, node.name, LIMITS, seal)
            node.replicas[envelope.shard] = replica
        self.step(node, replica, Received(envelope, secrets.randbits(62) + 1))

    def step(self, node: Node, replica: Replica, event: Event) -> None:
        soon = asyncio.get_running_loop().call_soon
        for effect in replica.step(now_ms(), event):
            if isinstance(effect, Send):
                at_once = effect.envelope.dst in self._asked
                self.arrive(effect.envelope) if at_once else soon(self.arrive, effect.envelope)
            elif isinstance(effect, SendEntries):
                entries = tuple(entry_of((header, b"")) for header in effect.headers)
                message = Entries(effect.epoch, entries, effect.commit, effect.first)
                source = (replica.shard, node.name, replica.incarnation)
                soon(self.arrive, Envelope(*source, *effect.to, message))
            elif isinstance(effect, Sync):
                soon(self.step, node, replica, Synced(effect.token))

    async def tick(self) -> None:
        while True:
            clock_ms = now_ms()
            for node in self.nodes.values():
                for replica in list(node.replicas.values()):
                    if replica.needs_tick(clock_ms):
                        self.step(node, replica, Tick())
            await asyncio.sleep(TICK_S)

    def append(self, shards: list[str]) -> int:
        """One entry to each; to how many."""
        appended = 0
        for shard in shards:
            for node in self.nodes.values():
                replica = node.replicas.get(shard)
                if replica is not None and replica.lead is not None:
                    asked = Envelope(
                        shard, "client", 0, node.name, 0, Register(1 + secrets.randbits(62))
                    )
                    self.step(node, replica, Received(asked))
                    appended += 1
        return appended


async def _no_snapshots(envelope: Envelope) -> AsyncIterator[bytes]:
    raise Rejected("nothing is copied here")
    yield b""


async def serve(names: list[str]) -> None:
    machines = Machines(names)
    addresses = {}
    for name, node in machines.nodes.items():
        addresses[name] = f"127.0.0.1:{await node.server.start('127.0.0.1', 0)}"
    ticking = asyncio.create_task(machines.tick())
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    print(json.dumps(addresses), flush=True)
    while line := await lines.readline():
        print(json.dumps({"appended": machines.append(json.loads(line))}), flush=True)
    ticking.cancel()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1:]))
