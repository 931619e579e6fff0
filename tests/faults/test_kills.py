"""`kill -9`, a hundred times and more, of nodes and coordinator, under load."""

from __future__ import annotations

from pathlib import Path

from faults.cluster import FaultCluster
from faults.nursery import Nursery
from faults.ordeal import TIMES, Ordeal, survive
from faults.processes import Process

KILLS = int(100 * TIMES)


async def kill_on(ordeal: Ordeal) -> None:
    """Whoever was killed comes back at once, which takes it a second or more."""
    cluster, random = ordeal.cluster, ordeal.random
    while cluster.kills < KILLS:
        kind, victims = await chosen(ordeal)
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.start()
        await ordeal.outage(kind)
        if random.random() < 0.3:
            await ordeal.load.until_more(random.randint(1, 400))


async def chosen(ordeal: Ordeal) -> tuple[str, list[Process]]:
    cluster, random = ordeal.cluster, ordeal.random
    leader = await ordeal.leader()
    followers = [node for node in cluster.nodes if node != leader]
    (coordinator,) = cluster.coordinators.values()
    kind = random.choices(
        ["leader", "follower", "coordinator", "leader and coordinator", "two nodes", "all nodes"],
        [8, 3, 2, 2, 2, 1],
    )[0]
    nodes = {
        "leader": [leader],
        "leader and coordinator": [leader],
        "follower": [random.choice(followers)],
        "coordinator": [],
        "two nodes": random.sample([*cluster.nodes], 2),
        "all nodes": [*cluster.nodes],
    }[kind]
    victims = [cluster.nodes[node] for node in nodes]
    if "coordinator" in kind:
        victims.append(coordinator)
    return kind, victims


def test_nothing_is_lost_over_a_hundred_kills(tmp_path: Path, nursery: Nursery):
    ordeal = survive(FaultCluster(tmp_path / "cluster", nursery=nursery), kill_on)
    assert ordeal.kills >= KILLS
