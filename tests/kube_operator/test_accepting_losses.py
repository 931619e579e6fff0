"""An entry that is damaged on every node is given up by a ShardOperation: real nodes and files."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from kube_operator.installation import Installation, operation_body, shard_body
from shardlog.client.client import Client
from shardlog.client.failures import EntryLost

THREE = "node-0 node-1 node-2"
BEFORE, DAMAGED, BEHIND = b"before", b"this one is damaged on every disk", b"behind"


def damage(directory: Path) -> int:
    struck = 0
    for path in directory.rglob("*.segment"):
        data = bytearray(path.read_bytes())
        at = data.find(DAMAGED)
        if at >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            struck += 1
    return struck


async def append(it: Installation, *values: bytes) -> None:
    async with Client(f"http://{it.operator.address}") as client:
        for value in values:
            async with client.producer("orders") as producer:
                await producer.append(value)


def test_T3_a_loss_is_accepted_through_the_operator(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await append(it, BEFORE, DAMAGED, BEHIND)
            for name in it.names:
                await it.end_node(name)
            assert damage(tmp_path) == 3
            for name in it.names:
                await it.start_node(name)
            found = await it.api.until(
                lambda: re.search(r"entry (\d+):(\d+)", it.status().get("waitingFor", ""))
            )
            epoch, offset = (int(number) for number in found.groups())
            wrong = operation_body(
                "wrong", "AcceptLoss", shard="orders", entry={"epoch": epoch, "offset": offset + 50}
            )
            right = operation_body(
                "right", "AcceptLoss", shard="orders", entry={"epoch": epoch, "offset": offset}
            )
            await it.api.create("shardoperations", wrong)
            await it.api.create("shardoperations", right)

            def phase(name: str) -> str:
                return str(
                    (it.api.get("shardoperations", name).get("status") or {}).get("phase", "")
                )

            await it.api.until(lambda: phase("right") == "Succeeded")
            assert phase("wrong") != "Succeeded"
            await it.ready()
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
