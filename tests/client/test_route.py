"""How the leader is found again: hints, the directory, and addresses in turn."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from shardlog.client import ClientLimits
from shardlog.client.directory import AddressList, Directory, Placement
from shardlog.client.failures import DirectoryUnavailable, NoLeader, NowhereFound
from shardlog.client.link import Channel
from shardlog.client.links import Links
from shardlog.client.route import Route
from shardlog.protocol.failures import NotLeader


@dataclass
class Node:
    """A link to a node; `incarnation` is that of its replica, 0 if it has none."""

    address: str
    incarnation: int = 1
    is_open: bool = True

    @property
    def name(self) -> str:
        return self.address.partition(":")[0]

    @property
    def connection(self) -> Any:
        return self

    def ping(self) -> None:
        """Nobody looks at the answer."""

    async def attach(self, shard: str, timeout_ms: int) -> Channel:
        channel = Channel(cast(Any, self), 1, shard)
        channel.incarnation = self.incarnation
        return channel


@dataclass
class Nodes:
    """All links of a client."""

    nodes: dict[str, Node] = field(default_factory=dict)

    async def at(self, address: str) -> Node:
        return self.nodes.setdefault(address, Node(address))


class Told:
    """A directory that says what it was told to."""

    def __init__(self, leader: str | None) -> None:
        self.leader = leader
        self.asked = 0
        self.is_silent = False

    async def find(self, shard: str) -> Placement:
        self.asked += 1
        if self.is_silent:
            raise DirectoryUnavailable("no answer")
        return Placement(self.leader, {name: f"{name}:1" for name in "abc"})

    async def names(self) -> list[str]:
        return []

    async def close(self) -> None:
        """Nothing is open."""


def route_by(directory: Directory, nodes: Nodes) -> Route:
    return Route("orders", directory, cast(Links, nodes), ClientLimits())


def test_hints_that_lead_in_a_circle_are_not_followed_for_ever():
    async def story() -> None:
        directory = Told("a")
        route = route_by(directory, Nodes())
        first = await route.leader()
        route.refused(first, NotLeader("b"))
        second = await route.leader()
        assert (second.link.address, directory.asked) == ("b:1", 1)
        directory.leader = "c"
        route.refused(second, NotLeader("a"))
        assert (await route.leader()).link.address == "c:1"

    asyncio.run(story())


def test_while_nobody_leads_the_node_that_is_silent_is_still_waited_for():
    async def story() -> None:
        directory = Told("a")
        route = route_by(directory, Nodes())
        channel = await route.leader()
        directory.leader = None
        assert not await route.reconsider(channel)
        assert await route.leader() is channel
        directory.leader = "b"
        assert await route.reconsider(channel)
        assert (await route.leader()).link.address == "b:1"

    asyncio.run(story())


def test_a_connection_that_ended_is_a_reason_to_ask_again():
    async def story() -> None:
        directory = Told("a")
        nodes = Nodes()
        route = route_by(directory, nodes)
        await route.leader()
        nodes.nodes["a:1"].is_open = False
        directory.leader = "b"
        assert (await route.leader()).link.address == "b:1"

    asyncio.run(story())


def test_nodes_that_are_known_are_tried_while_the_directory_is_silent():
    async def story() -> None:
        directory = Told("a")
        route = route_by(directory, Nodes())
        tried = set()
        channel = await route.leader()
        directory.is_silent = True
        for _ in range(3):
            route.refused(channel, NotLeader(None))
            channel = await route.leader()
            tried.add(channel.link.address)
        assert tried == {"a:1", "b:1", "c:1"}

    asyncio.run(story())


def test_only_if_all_addresses_hold_no_replica_now_there_is_none():
    """One that was without may have got one since another was found."""

    async def story() -> None:
        nodes = Nodes({"a:1": Node("a:1", 0), "b:1": Node("b:1")})
        route = route_by(AddressList(["a:1", "b:1"]), nodes)
        with pytest.raises(NoLeader, match="a:1"):
            await route.leader()
        channel = await route.leader()
        nodes.nodes["a:1"].incarnation, nodes.nodes["b:1"].incarnation = 1, 0
        nodes.nodes["b:1"].is_open = False
        nodes.nodes["b:1"] = Node("b:1", 0)
        route.refused(channel, NotLeader("b"))
        with pytest.raises(NoLeader, match="b:1") as told:
            await route.leader()
        assert not isinstance(told.value, NowhereFound)
        assert (await route.leader()).link.address == "a:1"

    asyncio.run(story())
