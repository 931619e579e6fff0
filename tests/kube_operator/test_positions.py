"""Positions in a status are written at most so often: real replicas, and a clock that we set."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kube_operator.installation import Installation, shard_body
from kube_operator.values import record, reports
from shardlog.client.client import Client
from shardlog.coordinator.calls import NodeControl
from shardlog.coordinator.driver import Control, Unanswered
from shardlog.protocol.messages import Envelope
from shardlog.protocol.shard import Shard
from shardlog_operator.looking import Heard, Looking
from shardlog_operator.process import OperatorProcess
from shardlog_operator.reconciling import Reconciler
from shardlog_operator.rolling import Replication
from shardlog_operator.status import without_positions

Json = Any
NEVER_S = 86400.0
POSITIONS_S = 30.0
LOOKS, STEP_S = 60, 2.0


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def second_look(process: OperatorProcess, clock: Clock) -> Reconciler:
    """Of the same Shards, by the same connections: the first never finds positions due."""
    settings = process.settings.model_copy(update={"positions_s": POSITIONS_S})
    first, nodes = process.reconciler, process.nodes
    control = NodeControl(process.client, nodes.control_address, nodes.data_address)
    looking = Looking(settings, process.host, control, clock)
    return Reconciler(
        settings, process.kube, process.watched, first.commander, looking, process.poster,
        first.publisher, clock, process.log,
    )  # fmt: skip


def statuses(it: Installation) -> list[Json]:
    return [body.get("status") or {} for _, _, body in it.api.history["shards"]]


def test_positions_are_written_once_in_a_while_however_often_one_looks(tmp_path: Path):
    async def story() -> None:
        it = Installation(tmp_path, "node-0")
        async with it.running(operators=0):
            process = await it.start_operator(positions_s=NEVER_S)
            await it.api.create("shards", shard_body(replicas=1))
            await it.ready(replicas=1)
            clock = Clock()
            reconciler = second_look(process, clock)
            written_s = []
            async with (
                Client(f"http://{process.address}") as client,
                client.producer("orders") as producer,
            ):
                for _ in range(LOOKS):
                    await producer.append(b"moves the positions")
                    before = len(statuses(it))
                    reconciler.node_heard()  # so that replicas are asked at every look
                    await reconciler.reconcile("orders")
                    found = statuses(it)[before - 1 :]
                    plain = [without_positions(each) for each in found]
                    # What is news besides may be written at any time.
                    if len(found) > 1 and all(each == plain[0] for each in plain):
                        written_s.append(clock.now_s)
                    clock.now_s += STEP_S
            # News that is written takes the positions along, and they wait from then on.
            assert 2 <= len(written_s) <= LOOKS * STEP_S / POSITIONS_S
            assert all(b - a >= POSITIONS_S for a, b in pairwise(written_s)), written_s

    asyncio.run(story())


class Replicas(Control):
    """Those of a shard, which are up or silent together."""

    def __init__(self) -> None:
        self.up = True

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope:
        if not self.up:
            raise Unanswered(envelope.dst)
        told = {each.member.node: each for each in reports()}[envelope.dst]
        return Envelope("orders", envelope.dst, 1, "operator", 0, told)


def looking_at(shard: Shard, control: Control, clock: Clock) -> tuple[Looking, Any]:
    host = SimpleNamespace(
        name="operator", begun=asyncio.Event(), shards={"orders": shard}, unreadable={}
    )
    host.begun.set()
    settings: Any = SimpleNamespace(positions_s=POSITIONS_S)
    return Looking(settings, cast(Any, host), control, clock), host


def test_a_leader_that_is_silent_twice_is_believed_to_be():
    """Once may be our own fault: what it said before stands."""

    async def story() -> None:
        shard, control, clock = record(), Replicas(), Clock()
        looking, _ = looking_at(shard, control, clock)
        heard = Heard()
        seen = []
        for control.up in (True, False, False):
            clock.now_s += POSITIONS_S
            assert await looking.ask(shard, heard)
            seen.append(len(heard.reports or ()))
        assert seen == [3, 3, 0]

    asyncio.run(story())


def test_what_was_heard_of_an_earlier_record_opens_no_gate():
    async def story() -> None:
        shard = record()
        looking, host = looking_at(shard, Replicas(), Clock())
        assert await looking.ask(shard, Heard())
        everyone = frozenset("abc")
        assert looking.replication() == {"orders": Replication(everyone, ())}
        host.shards["orders"] = replace(shard, epoch=shard.epoch + 1)
        assert looking.replication() == {"orders": Replication(everyone, None)}

    asyncio.run(story())
