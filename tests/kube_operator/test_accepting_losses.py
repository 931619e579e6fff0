"""An entry that is damaged on every node is given up by a ShardOperation: real nodes and files."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from kube_operator.installation import Installation, operation_body, shard_body
from shardlog.client.client import Client
from shardlog.client.failures import EntryLost

ATTEMPTS_MAX = 5
THREE = "node-0 node-1 node-2"
BEFORE, DAMAGED, BEHIND = b"before", b"this one is damaged on every disk", b"behind"


def damage(directory: Path) -> int:
    struck = 0
    for path in directory.rglob("*.segment"):
        at = path.read_bytes().find(DAMAGED)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([DAMAGED[0] ^ 1]))
            struck += 1
    return struck


async def append(it: Installation, *values: bytes) -> None:
    async with Client(f"http://{it.operator.address}") as client:
        for value in values:
            async with client.producer("orders") as producer:
                await producer.append(value)


def all_have_all(it: Installation) -> bool:
    ends = {node.host.replicas["orders"].store.durable_end for node in it.nodes.values()}
    return len(ends) == 1


def named(it: Installation, reason: str) -> tuple[int, int] | None:
    """The entry that conditions and a warning name, once they name every node."""
    ready, told = it.condition("Ready"), it.condition("Ready").get("message", "")
    found = re.search(r"entry (\d+):(\d+) on (.*)", told)
    if ready.get("reason") != reason or found is None or found[3].split(", ") != it.names:
        return None
    whole = it.condition("FullyReplicated")
    assert (ready["status"], whole["status"], whole["reason"]) == ("False", "False", reason)
    assert told == whole["message"] == it.status()["waitingFor"]
    warned = ("Warning", reason, told) in it.events()
    return (int(found[1]), int(found[2])) if warned else None


async def given_up(it: Installation, epoch: int, offset: int) -> None:
    for attempt in range(ATTEMPTS_MAX):
        if await operated(it, f"right-{attempt}", epoch, offset) == "Succeeded":
            return  # an election that begins anew does not wait for anything yet
    raise AssertionError(f"entry {epoch}:{offset} is not given up")


async def operated(it: Installation, name: str, epoch: int, offset: int) -> str:
    """How it ends."""
    entry = {"epoch": epoch, "offset": offset}
    body = operation_body(name, "AcceptLoss", shard="orders", entry=entry)
    await it.api.create("shardoperations", body)

    def ended() -> str | None:
        status = it.api.get("shardoperations", name).get("status") or {}
        return status["phase"] if status.get("phase") in ("Succeeded", "Failed") else None

    return str(await it.api.until(ended))


def test_T3_a_loss_is_accepted_through_the_operator(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await append(it, BEFORE, DAMAGED, BEHIND)
            await it.api.until(lambda: all_have_all(it))
            for name in it.names:
                await it.end_node(name)
            assert damage(tmp_path) == 3
            for name in it.names:
                await it.start_node(name)
            epoch, offset = await it.api.until(lambda: named(it, "EntryAwaited"))
            assert it.condition("Available")["reason"] == "EntryAwaited"
            assert await operated(it, "wrong", epoch, offset + 50) == "Failed"
            await given_up(it, epoch, offset)
            await it.ready()
            await it.api.until(lambda: "GoesOn" in it.reasons())
            record = it.record()
            assert record is not None
            assert [lost.id for lost in record.losses] == [(epoch, offset)]
            async with Client(f"http://{it.operator.address}") as client:
                records = client.read("orders")
                assert (await anext(records)).value == BEFORE
                with pytest.raises(EntryLost) as failure:
                    await anext(records)
                rest = [each.value async for each in client.read("orders", failure.value.next)]
            assert rest == [BEHIND]
            await append(it, b"and on it goes")

    asyncio.run(story())


async def read_all(it: Installation) -> None:
    """Stands still before what nobody can supply."""
    async with Client(f"http://{it.operator.address}") as client:
        async for _ in client.read("orders"):
            pass


def test_T3_a_shard_that_serves_names_what_is_damaged_on_every_node(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await append(it, BEFORE, DAMAGED, BEHIND)
            await it.api.until(lambda: all_have_all(it))
            assert damage(tmp_path) == 3
            reading = asyncio.create_task(read_all(it))
            epoch, offset = await it.api.until(lambda: named(it, "EntryDamaged"))
            assert it.condition("Available")["status"] == "True"
            await append(it, b"it serves")
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await given_up(it, epoch, offset)
            await it.ready()
            await it.api.until(lambda: "GoesOn" in it.reasons())

    asyncio.run(story())
