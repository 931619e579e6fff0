"""The judge on real processes that lack a rule: an ordeal that never fails would show nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.cluster import FaultCluster
from faults.network import Network
from faults.nursery import Nursery
from faults.ordeal import Doing, Ordeal, survive
from faults.test_network import leader_with_clients_alone

KILLS = 10
CUTS = 6
MEANWHILE = 600


async def kill_leaders(ordeal: Ordeal) -> None:
    """Their successors meet what they had not answered."""
    for _ in range(KILLS):
        leader = ordeal.cluster.nodes[await ordeal.leader()]
        leader.kill()
        leader.start()
        await ordeal.outage("leader")


async def strand_leaders(ordeal: Ordeal) -> None:
    """Clients that still find them ask them, while others write elsewhere."""
    network = ordeal.cluster.network
    assert network is not None
    for _ in range(CUTS):
        leader, followers = await ordeal.leader(), await ordeal.followers()
        network.cut(*leader_with_clients_alone(leader, followers))
        await ordeal.outage("leader stranded")
        await ordeal.load.until_more(MEANWHILE)
        network.heal()
        await ordeal.outage("healed")


@pytest.mark.parametrize(
    ("mutant", "doing", "told"),
    [
        ("retry_appended_again", kill_leaders, "and stands at"),
        ("read_unconfirmed", strand_leaders, "not linearizable"),
    ],
)
def test_a_missing_rule_is_noticed(tmp_path: Path, mutant: str, doing: Doing, told: str):
    with Nursery.open(mutant) as nursery:
        cluster = FaultCluster(tmp_path / "cluster", network=Network(), nursery=nursery)
        with pytest.raises(AssertionError, match=told):
            survive(cluster, doing)
