"""Silent cuts between processes: of all, of pairs, of one direction, of the control plane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from faults.cluster import FaultCluster
from faults.network import CLIENTS, COORDINATOR, Direction, Network, both_ways
from faults.nursery import Nursery
from faults.ordeal import TIMES, Ordeal, survive

STEPS = int(18 * TIMES)
DELAY_MS = 40

Cut = Callable[[str, list[str]], list[Direction]]
"""(leader, followers) → what passes no more."""


def leader_cut_off(leader: str, followers: list[str]) -> list[Direction]:
    return [*both_ways(leader, [*followers, COORDINATOR, CLIENTS])]


def leader_unheard(leader: str, followers: list[str]) -> list[Direction]:
    return [(leader, other) for other in [*followers, COORDINATOR, CLIENTS]]


def leader_deaf(leader: str, followers: list[str]) -> list[Direction]:
    return [(other, leader) for other in [*followers, COORDINATOR, CLIENTS]]


def leader_from_followers(leader: str, followers: list[str]) -> list[Direction]:
    """Clients and coordinator still reach it."""
    return [*both_ways(leader, followers)]


def leader_with_clients_alone(leader: str, followers: list[str]) -> list[Direction]:
    """It does not hear that it is deposed, and those who still ask it must not be told old news."""
    return [*both_ways(leader, [*followers, COORDINATOR])]


def leader_from_coordinator(leader: str, followers: list[str]) -> list[Direction]:
    """Its followers hear it, so nobody is to be elected."""
    return [*both_ways(leader, [COORDINATOR])]


def follower_cut_off(leader: str, followers: list[str]) -> list[Direction]:
    one, other = followers
    return [*both_ways(one, [leader, other, COORDINATOR, CLIENTS])]


def follower_deaf_to_leader(leader: str, followers: list[str]) -> list[Direction]:
    return [(leader, followers[0])]


def followers_apart(leader: str, followers: list[str]) -> list[Direction]:
    return [*both_ways(followers[0], followers[1:])]


def in_a_row(leader: str, followers: list[str]) -> list[Direction]:
    """Leader and one follower hear only the third: no two of them are a majority by themselves."""
    return [*both_ways(leader, followers[:1])]


CUTS: tuple[Cut, ...] = (
    leader_cut_off,
    leader_cut_off,
    leader_unheard,
    leader_deaf,
    leader_from_followers,
    leader_with_clients_alone,
    leader_with_clients_alone,
    leader_from_coordinator,
    follower_cut_off,
    follower_deaf_to_leader,
    followers_apart,
    in_a_row,
)


async def cut_on(ordeal: Ordeal) -> None:
    network, random = ordeal.cluster.network, ordeal.random
    assert network is not None
    cuts = [*CUTS, *random.choices(CUTS, k=STEPS)][:STEPS]
    random.shuffle(cuts)
    for cut in cuts:
        leader, followers = await ordeal.leader(), await ordeal.followers()
        random.shuffle(followers)
        directions = cut(leader, followers)
        if random.random() < 0.3:
            network.delay_ms.update(dict.fromkeys(both_ways(*_pair(ordeal)), DELAY_MS))
        network.cut(*directions)
        await ordeal.outage(cut.__name__.replace("_", " "))
        await ordeal.load.until_more(random.randint(1, 600))
        if random.random() < 0.3:
            network.reset(leader)
        network.heal()
        await ordeal.outage("healed")


def _pair(ordeal: Ordeal) -> tuple[str, list[str]]:
    one, other = ordeal.random.sample([*ordeal.cluster.nodes], 2)
    return one, [other]


def test_nothing_is_lost_over_cuts_of_the_network(tmp_path: Path, nursery: Nursery):
    cluster = FaultCluster(tmp_path / "cluster", network=Network(), nursery=nursery)
    survive(cluster, cut_on)
