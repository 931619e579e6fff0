"""A Shard from its creation to its end: the API emulated, nodes and everything else real."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube_operator.installation import Installation, operation_body, shard_body
from shardlog_operator.nodes import GATE
from shardlog_operator.spec import FINALIZER

THREE = "node-0 node-1 node-2"
FOUR = f"{THREE} node-3"


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def members(it: Installation) -> set[str]:
    return {
        each["node"]
        for each in it.status().get("ensemble", [])
        if each["role"] in ("Leader", "Follower")
    }


async def operated(it: Installation, name: str, phase: str = "Succeeded") -> Any:
    def ended() -> Any:
        status = it.api.get("shardoperations", name).get("status") or {}
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    status = await it.api.until(ended)
    assert status["phase"] == phase, status
    assert status["completedAt"]
    return status


async def reconciled(it: Installation, times: int) -> None:
    """By each operator."""
    schedules = [process.schedule for process, _ in it.operators.values()]
    wanted = [each.done + times for each in schedules]
    await it.api.until(
        lambda: all(each.done >= least for each, least in zip(schedules, wanted, strict=True))
    )


def test_a_shard_is_created_and_found(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            status = await it.ready()
            body = it.api.get("shards", "orders")
            assert body["metadata"]["finalizers"] == [FINALIZER]
            assert members(it) == set(THREE.split())
            assert status["observedGeneration"] == 1

            service = it.api.get("services", "orders")
            assert service["metadata"]["ownerReferences"][0]["uid"] == body["metadata"]["uid"]
            await it.api.until(
                lambda: (
                    it.api.get("endpointslices", "orders")["endpoints"]
                    and it.api.get("endpointslices", "orders")["endpoints"][0]["targetRef"]["name"]
                    == status["leader"]
                )
            )
            await it.until_told("Creating", "LeaderElected")
            await directory_tells(it)

    run(story())


def test_a_leader_that_is_elected_before_the_next_look_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            commander = it.operator.reconciler.commander
            command = commander.command

            async def answered_late(name: str, asked: Any) -> Any:
                answer = await command(name, asked)
                await it.until_record(lambda record: record.leader is not None, name)
                return answer

            monkeypatch.setattr(commander, "command", answered_late)
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await it.until_told("Creating", "LeaderElected")

    run(story())


async def directory_tells(it: Installation) -> None:
    url = f"http://{it.operator.address}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/v1/shards/orders") as answer:
            told = await answer.json()
        assert told["leader"] == it.status()["leader"]
        assert set(told["addresses"]) == set(THREE.split())
        assert told["replicas"] == 3
        async with session.get(f"{url}/v1/shards/orders/status") as answer:
            assert len((await answer.json())["reports"]) == 3
        async with session.get(f"{url}/v1/shards/none") as answer:
            assert (answer.status, (await answer.json())["kind"]) == (404, "NoSuchShard")
        async with session.get(f"{url}/v1/shards") as answer:
            assert [each["name"] for each in (await answer.json())["shards"]] == ["orders"]
        async with session.get(f"{url}/v1/nodes") as answer:
            assert len((await answer.json())["nodes"]) == 3
        for path in ("/healthz", "/readyz"):
            async with session.get(url + path) as answer:
                assert answer.status == 200
        async with session.get(f"{url}/metrics") as answer:
            assert 'shardlog_operator_shards{status="STEADY"} 1.0' in await answer.text()


def test_the_user_of_a_container_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr(getpass, "getuser", nobody)

    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()

    run(story())


def test_scaled_up_and_down(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await it.api.change("shards", "orders", {"spec": {"replicas": 5}})
            assert len((await it.ready(replicas=5))["ensemble"]) == 5
            await it.api.change("shards", "orders", {"spec": {"replicas": 3}})
            await it.ready(replicas=3)
            # A step that is tried again on another node is told again.
            await it.api.until(lambda: it.reasons().count("Scaling") >= 4)

    run(story())


def test_idle_shards_cost_no_writes(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running(operators=2) as it:
            names = [f"shard-{number}" for number in range(2)]
            for name in names:
                await it.api.create("shards", shard_body(name, replicas=3))
            for name in names:
                await it.ready(name)
            # On a machine that is too busy a leader may really have been silent: look again then.
            writes = -1
            while len(it.api.writes) != writes:
                writes = len(it.api.writes)
                await reconciled(it, 20)

    run(story())


def test_what_cannot_be_placed_says_so_and_recovers(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, "node-0 node-1").running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.api.until(lambda: it.condition("Ready").get("reason") == "TooFewNodes")
            assert it.status()["phase"] == "Pending"
            assert "there are 2" in it.status()["waitingFor"]
            await it.api.until(lambda: "TooFewNodes" in it.reasons())
            await it.api.create("nodes", {"metadata": {"name": "machine-node-2"}})
            await it.start_node("node-2")
            await it.ready()
            assert "waitingFor" not in it.status()

    run(story())


def test_a_lost_node_is_swapped_after_a_while(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            leader = (await it.ready())["leader"]
            await it.lose_node(leader)
            await it.until_record(
                lambda shard: leader not in {each.node for each in shard.ensemble}
            )
            # What it held stays on the list of what is to be destroyed until it is back.
            await it.api.until(
                lambda: (
                    it.condition("FullyReplicated").get("status") == "True"
                    and leader not in members(it)
                )
            )
            assert it.status()["leader"] != leader
            await it.until_told("NodeLost")
            slices = it.api.get("endpointslices", "orders")
            assert slices["endpoints"][0]["targetRef"]["name"] == it.status()["leader"]

    run(story())


def test_a_node_is_drained_and_taken_back(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            leader = (await it.ready())["leader"]
            await it.api.create("shardoperations", operation_body("away", "Drain", node=leader))
            await operated(it, "away")
            await it.ready()
            assert leader not in members(it)
            await it.until_told("NodeDrained")
            told = [message for _, reason, message in it.events() if reason == "NodeDrained"]
            assert f"shall lead: {leader} is drained" in told[0]
            await it.api.until(lambda: f"{leader} is swapped for" in str(it.events()))
            await it.api.change("shards", "orders", {"spec": {"replicas": 4}})
            await it.api.until(lambda: it.condition("Ready").get("reason") == "TooFewNodes")
            await it.api.delete("shardoperations", "away")
            await it.ready(replicas=4)
            assert leader in members(it)

    run(story())


def test_a_cordoned_machine_is_left(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            node = sorted(members(it) if await it.ready() else ())[0]
            await it.api.change("nodes", f"machine-{node}", {"spec": {"unschedulable": True}})
            await it.until_record(lambda shard: node not in {each.node for each in shard.ensemble})
            await it.api.until(lambda: "NodeCordoned" in it.reasons())

    run(story())


def test_operations_of_people(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            leader = (await it.ready())["leader"]
            other = sorted(members(it) - {leader})[0]
            create = it.api.create
            await create(
                "shardoperations", operation_body("a", "Promote", shard="orders", node=other)
            )
            await operated(it, "a")
            record = it.record()
            assert record is not None
            assert record.leader is not None
            assert record.leader.node == other
            await create(
                "shardoperations", operation_body("b", "Swap", shard="orders", oldNode=leader)
            )
            await operated(it, "b")
            await it.ready()
            assert leader not in members(it)
            for name, body, told in (
                (
                    "c",
                    operation_body("c", "Promote", shard="orders", node="node-9"),
                    "not a member",
                ),
                ("d", operation_body("d", "Abort", shard="orders"), "no reconfiguration"),
                ("e", operation_body("e", "Promote", shard="none", node="node-0"), "no Shard none"),
                ("f", operation_body("f", "Swap", shard="orders", oldNode=leader), "not a member"),
            ):
                await create("shardoperations", body)
                assert told in (await operated(it, name, "Failed"))["message"]

    run(story())


def test_a_scaling_is_aborted_and_taken_up_again(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            # The node is asked to host a replica, and does not answer: the change stays under way.
            other = next(iter(set(FOUR.split()) - members(it)))
            await it.end_node(other)
            await it.api.change("shards", "orders", {"spec": {"replicas": 4}})
            await it.api.until(lambda: it.status().get("reconfiguration"))
            body = operation_body("stop", "Abort", shard="orders")
            await it.api.create("shardoperations", body)
            await operated(it, "stop")
            await it.api.until(lambda: it.condition("Ready").get("reason") == "Aborted")
            assert it.status()["phase"] == "Steady"
            await it.start_node(other)
            change = {"spec": {"replicas": 4, "paused": False}}
            await it.api.change("shards", "orders", change)
            await it.ready(replicas=4)

    run(story())


def test_a_paused_shard_fails_over_and_is_left_alone_otherwise(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            leader = (await it.ready())["leader"]
            change = {"spec": {"paused": True, "replicas": 4}}
            await it.api.change("shards", "orders", change)
            await it.api.until(lambda: it.status().get("phase") == "Paused")
            await it.lose_node(leader)
            shard = await it.until_record(
                lambda shard: shard.leader is not None and shard.leader.node != leader
            )
            assert len(shard.ensemble) == 3
            await it.api.until(lambda: it.status().get("leader") != leader)
            await it.start_node(leader)
            await it.api.change("shards", "orders", {"spec": {"paused": False}})
            await it.ready(replicas=4)

    run(story())


def test_a_name_that_is_taken_is_left_alone(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("services", {"metadata": {"name": "orders"}, "spec": {"x": 1}})
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await it.api.until(lambda: "NameTaken" in it.reasons())
            assert it.api.get("services", "orders")["spec"] == {"x": 1}

    run(story())


def test_a_pod_is_ready_once_its_shards_are_whole_again(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:

            def gate(name: str) -> str | None:
                conditions = it.api.get("pods", name)["status"]["conditions"]
                return next((each["status"] for each in conditions if each["type"] == GATE), None)

            await it.api.create("shards", shard_body(replicas=3))
            leader = (await it.ready())["leader"]
            await it.api.until(lambda: all(gate(name) == "True" for name in it.names))
            node = sorted(members(it) - {leader})[0]
            await it.end_node(node)
            await it.start_node(node)
            assert gate(node) is None
            await it.api.until(lambda: gate(node) == "True")
            await it.ready()

    run(story())


def test_a_leader_is_moved_away_from_a_pod_that_stops(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            leader = (await it.ready())["leader"]
            await it.api.change("pods", leader, {"metadata": {"finalizers": ["kubelet/stops"]}})
            await it.api.delete("pods", leader)
            shard = await it.until_record(
                lambda shard: shard.leader is not None and shard.leader.node != leader
            )
            assert leader in {each.node for each in shard.ensemble}
            await it.api.until(lambda: "NodeRestarts" in it.reasons())

    run(story())
