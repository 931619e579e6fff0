"""`kubectl shardlog` against a real API server and an operator that answers it.

`logs` is tried in `e2e/cluster`: the API server gets logs from kubelets, and there is none here.
"""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from e2e.operated.installation import Installation
from shardlog.cli import exit_codes
from shardlog.client.client import Client

T = TypeVar("T")
DAMAGED = b"this one is damaged on every disk"
NODES = ("node-0", "node-1", "node-2", "node-3")


@pytest.fixture
def ready(it: Installation) -> Installation:
    it.start_nodes(*NODES)
    it.start_operator()
    it.shard(replicas=3)
    it.ready()
    return it


def said(it: Installation, *arguments: str) -> str:
    done = it.plugin(*arguments)
    assert done.returncode == exit_codes.OK, done.stderr
    return done.stdout


def refused(it: Installation, *arguments: str) -> str:
    done = it.plugin(*arguments)
    assert done.returncode == exit_codes.REFUSED, done.stderr
    assert done.stderr.splitlines()[-1].startswith("shardlog: ")
    return done.stderr


def abort(it: Installation) -> None:
    """A scaling whose new node is asked for a replica, and does not answer."""
    (other,) = set(NODES) - it.members()
    it.kill_node(other)
    it.kubectl("scale", "shard/orders", "--replicas=4")
    it.until(lambda: it.status().get("reconfiguration"))
    assert "Succeeded" in said(it, "abort", "orders")
    it.until(lambda: it.condition("Ready").get("reason") == "Aborted")
    it.start_nodes(other)
    it.kubectl("scale", "shard/orders", "--replicas=3")
    it.ready()


def test_a_person_at_work(ready: Installation, tmp_path: Path):
    it = ready
    assert it.completed("status", "") == ["orders"]
    assert it.completed("status", "x") == []
    assert it.completed("promote", "orders", "node-") == list(NODES)
    told = json.loads(said(it, "status", "-o", "json"))
    assert [each["name"] for each in told["nodes"]] == list(NODES)
    assert told["shards"][0]["status"]["phase"] == "Steady"
    assert "orders" in said(it, "status")
    one = said(it, "status", "orders")
    assert "history" in one
    assert "AllCaughtUp" in one

    leader = it.status()["leader"]
    other = sorted(it.members() - {leader})[0]
    assert "Succeeded" in said(it, "promote", "orders", other)
    assert it.until(lambda: it.status()["leader"] == other)

    outside = (set(NODES) - it.members()).pop()
    assert "Succeeded" in said(it, "swap", "orders", leader, outside)
    it.until(lambda: outside in it.members())

    drained = json.loads(said(it, "drain", other, "-o", "json"))
    assert drained["status"]["phase"] == "Succeeded"
    assert "Succeeded" in said(it, "drain", other)
    it.until(lambda: other not in it.members())
    nodes = json.loads(said(it, "status", "-o", "json"))["nodes"]
    assert [each["name"] for each in nodes if each["drained"]] == [other]
    assert "deleted" in said(it, "undrain", other)

    assert "not drained" in refused(it, "undrain", other)
    assert "no reconfiguration" in refused(it, "abort", "orders")
    assert "not a member" in refused(it, "promote", "orders", "node-9")
    assert "not found" in refused(it, "status", "no-such-shard")

    it.template()
    asked = json.loads(said(it, "snapshot", "create", "orders", "s3://backups/logs", "--keep", "3",
                            "--older-than", "7d", "--no-wait", "-o", "json"))  # fmt: skip
    assert asked["spec"]["retention"] == {"keep": 3, "time": "168h"}
    name = asked["name"]
    it.until(lambda: json.loads(said(it, "snapshot", "list", "orders", "-o", "json"))
             ["snapshots"][0]["status"].get("phase") == "Running")  # fmt: skip
    assert said(it, "snapshot", "list").split()[10:13] == [name, "orders", "Running"]
    assert "no Shard nothing" in refused(it, "snapshot", "create", "nothing", "s3://b/p")
    assert "needs claimName" in refused(it, "snapshot", "create", "orders", "file:///snapshots")
    assert "deleted" in said(it, "snapshot", "delete", name)
    assert "does not wait for" in refused(it, "accept-loss", "orders", "1:999", "--yes")
    abort(it)

    path = tmp_path / "report.tar.gz"
    said(it, "report", "--file", str(path))
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert "shardlog-report/objects/shards.json" in names
    assert "shardlog-report/objects/events.json" in names


def copies(directory: Path) -> dict[Path, int]:
    """Where in which files it stands."""
    found = {path: path.read_bytes().find(DAMAGED) for path in directory.rglob("*.segment")}
    return {path: at for path, at in found.items() if at >= 0}


def damage(directory: Path) -> None:
    """On every disk, under nodes that run."""
    for path, at in copies(directory).items():
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"?")


async def read_until(it: Installation, told: Callable[[], T]) -> T:
    """Readers find what is damaged, and stand still before it."""

    async def read(client: Client) -> None:
        async for _ in client.read("orders"):
            pass

    async with Client(f"http://{it.operator_address()}") as client:
        reading = asyncio.create_task(read(client))
        try:
            return await asyncio.to_thread(it.until, told)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def append(it: Installation, value: bytes) -> None:
    async with (
        Client(f"http://{it.operator_address()}") as client,
        client.producer("orders") as producer,
    ):
        await producer.append(value)


def test_what_is_damaged_on_every_node_is_named_and_given_up(ready: Installation):
    it = ready
    asyncio.run(append(it, DAMAGED))
    it.until(lambda: len(copies(it.directory)) == 3)
    damage(it.directory)

    def entry() -> re.Match[str] | None:
        ready = it.condition("Ready")
        found = re.search(r"entry (\d+:\d+)", ready["message"])
        return found if ready["reason"] == "EntryDamaged" else None

    found = asyncio.run(read_until(it, entry))
    assert found is not None
    assert f"entry {found[1]}" in said(it, "status", "orders")
    assert "Succeeded" in said(it, "accept-loss", "orders", found[1], "--yes")
    it.ready()
    it.until(lambda: {"EntryDamaged", "GoesOn"} <= it.reasons())


def test_no_operator_is_not_waited_for_without_end(it: Installation):
    it.shard(replicas=3)
    done = it.plugin("abort", "orders", "--timeout", "1")
    assert done.returncode == exit_codes.UNAVAILABLE
    assert "not within 1 s" in done.stderr
    asked = said(it, "abort", "orders", "--no-wait")
    assert "Pending" in asked
