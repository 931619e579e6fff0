"""Many shards, in virtual time: what they cost at rest, and what wakes them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.machines import Machines, run_virtually
from shardlog.coordinator.driver import DriverLimits
from shardlog.protocol.coordination import Accepted, CoordinatorLimits, CreateShard
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Status

LIMITS, DRIVER = CoordinatorLimits(), DriverLimits()
SHARDS = 20
NODES = "a b c d e"
SETTLED_S = 5


@asynccontextmanager
async def many(shards: int = SHARDS) -> AsyncIterator[Machines]:
    machines = Machines(NODES)
    tasks = [asyncio.create_task(each) for each in (machines.host.run(), machines.ticking())]
    try:
        names = machines.names
        for number in range(shards):
            nodes = tuple(names[(number + each) % len(names)] for each in range(3))
            answer = await machines.host.command(
                f"s{number}", CreateShard(nodes, QuorumPolicy())
            )  # fmt: skip
            assert isinstance(answer, Accepted), answer
        await machines.until(lambda found: sum(each.leader is not None for each in found) == shards)
        await asyncio.sleep(SETTLED_S)
        yield machines
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_shards_at_rest_write_nothing_and_are_asked_now_and_then():
    async def story() -> None:
        async with many() as machines:
            writes, calls = machines.store.writes, Counter(machines.calls)
            seconds = 15
            await asyncio.sleep(seconds)
            made = machines.calls - calls
            assert machines.store.writes == writes
            assert set(made) == {"StatusRequest", "News"}
            rounds = seconds * 1000 / LIMITS.rest_ms
            assert rounds - 1 <= made["StatusRequest"] / (3 * SHARDS) <= rounds + 1
            looks = seconds * 1000 / DRIVER.look_ms
            assert looks * 0.9 <= made["News"] / len(machines.names) <= looks + 1

    run_virtually(story())


def test_leaders_are_spread_over_the_nodes():
    async def story() -> None:
        async with many() as machines:
            led = Counter(each.leader.node for each in machines.host.shards.values() if each.leader)
            assert max(led.values()) <= 2 * SHARDS / len(machines.names)

    run_virtually(story())


def test_T11_a_node_dies_and_each_shard_that_it_led_is_led_within_half_a_second():
    async def story() -> None:
        async with many() as machines:
            led = [name for name, each in machines.host.shards.items() if led_by(each) == "a"]
            others = {n: s.epoch for n, s in machines.host.shards.items() if n not in led}
            assert led
            loop = asyncio.get_running_loop()
            begun = loop.time()
            machines.kill("a")
            await machines.until(
                lambda found: all(
                    each.status is Status.STEADY and led_by(each) != "a" for each in found
                )
            )
            assert loop.time() - begun <= 0.5
            await asyncio.sleep(SETTLED_S)
            assert {name: machines.host.shards[name].epoch for name in others} == others

    run_virtually(story())


def led_by(shard) -> str | None:
    return shard.leader.node if shard.leader else None


def test_a_node_that_is_gone_keeps_no_shard_awake():
    async def story() -> None:
        async with many() as machines:
            machines.kill("a")
            await asyncio.sleep(2 * SETTLED_S)
            writes, asked = machines.store.writes, machines.questions()
            seconds = 15
            await asyncio.sleep(seconds)
            assert machines.store.writes == writes
            rounds = seconds * 1000 / LIMITS.rest_ms
            assert (machines.questions() - asked) / (3 * SHARDS) <= rounds + 1

    run_virtually(story())
