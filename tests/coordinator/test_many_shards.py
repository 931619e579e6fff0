"""Many shards, in virtual time: what they cost at rest, and what wakes them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from coordinator.machines import Machines, run_virtually
from shardlog.coordinator.driver import DriverLimits
from shardlog.coordinator.elections import ELECTIONS_MAX
from shardlog.protocol.coordination import Accepted, CoordinatorLimits, CreateShard
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status

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
            writes, calls = machines.store.writes, Counter(machines.calls)
            seconds = 15
            await asyncio.sleep(seconds)
            made = machines.calls - calls
            assert machines.store.writes == writes
            rounds = seconds * 1000 / LIMITS.rest_ms
            assert made["StatusRequest"] / (3 * SHARDS) <= rounds + 1

    run_virtually(story())


def test_a_node_that_led_many_dies_and_few_are_elected_at_once_each_in_one_epoch():
    """Nodes take their time for a call, and the metadata for a write: all at once would be late."""

    async def story() -> None:
        async with many(300) as machines:
            led = [name for name, each in machines.host.shards.items() if led_by(each) == "a"]
            epochs = {name: each.epoch for name, each in machines.host.shards.items()}
            assert len(led) > 3 * ELECTIONS_MAX
            machines.call_s, machines.store.write_s = 0.02, 0.03
            calls = Counter(machines.calls)
            most = 0

            def all_led(found: Iterable[Shard]) -> bool:
                nonlocal most
                most = max(most, sum(each.status is Status.ELECTION for each in found))
                return all(each.status is Status.STEADY and led_by(each) != "a" for each in found)

            machines.kill("a")
            await machines.until(all_led)
            assert most <= ELECTIONS_MAX
            raised = {n: s.epoch - epochs[n] for n, s in machines.host.shards.items()}
            assert raised == {name: int(name in led) for name in epochs}
            assert (machines.calls - calls)["BecomeLeader"] == len(led)

    run_virtually(story())
