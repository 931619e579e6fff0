"""Nodes on real files in one process, led by a test: who is fenced, who leads and with whom.

A coordinator would never do some of what has to be refused, so there is none.  Two members, of
which one is a replication quorum: whoever leads may commit while the other is away.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from node.cluster import Cluster
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import (
    AddFollower,
    BecameLeader,
    BecomeLeader,
    Create,
    Created,
    Envelope,
    Fence,
    FenceAnswer,
    FollowerAdded,
    Kept,
    Message,
    Trim,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.replica import Replica
from shardlog_node.host import HostedReplica
from shardlog_node.pacing import Pace, PaceLimits

SHARD = "orders"
ONE_IS_ENOUGH = QuorumPolicy(1, 2)


class ByHand(Cluster):
    """`a` and `b`; `epoch` rises with every election."""

    def __init__(self, directory: Path, names: str = "a b") -> None:
        super().__init__(directory, names)
        self.epoch = 0
        self.led_by = ""
        self.members: dict[str, Member] = {}

    def hosted(self, node: str) -> HostedReplica:
        return self.nodes[node].replicas[SHARD]

    def replica(self, node: str) -> Replica:
        return self.hosted(node).replica

    async def come_back(self, node: str) -> None:
        """Started again, with its replica opened."""
        host = self.start(node)
        while SHARD not in host.replicas:
            await asyncio.sleep(0.01)

    async def tell(self, node: str, message: Message) -> Message:
        incarnation = self.members[node].incarnation if node in self.members else 0
        asked = Envelope(SHARD, "by hand", 0, node, incarnation, message)
        return (await self.nodes[node].call(asked, 30_000)).message

    async def create_all(self) -> None:
        for node in self.names:
            created = await self.tell(node, Create())
            assert isinstance(created, Created)
            self.members[node] = Member(node, created.incarnation)

    async def fence(self, *nodes: str) -> dict[str, FenceAnswer]:
        """In a new epoch."""
        self.epoch += 1
        answers: dict[str, FenceAnswer] = {}
        for node in nodes:
            answer = await self.tell(node, Fence(self.epoch))
            assert isinstance(answer, FenceAnswer), answer
            answers[node] = answer
        return answers

    async def elect(self, leader: str, *others: str, kept: Kept | None = None) -> None:
        """It leads with its own log, unless another is to be kept, which the others supply."""
        answers = await self.fence(leader, *others)
        own = answers[leader]
        message = BecomeLeader(
            self.epoch,
            tuple(sorted(self.members.values())),
            ONE_IS_ENOUGH,
            kept or Kept(own.history, own.end, own.head),
            tuple(self.members[each] for each in others),
            tuple(answers[each] for each in others),
        )
        answer = await self.tell(leader, message)
        assert isinstance(answer, BecameLeader), answer
        self.led_by = leader

    async def add(self, node: str) -> Message:
        """A member that was away: fenced in the epoch that is led, and told to the leader."""
        answer = await self.tell(node, Fence(self.epoch))
        assert isinstance(answer, FenceAnswer), answer
        return await self.tell(self.led_by, AddFollower(self.epoch, answer, standby=False))

    async def follow(self, node: str) -> None:
        added = await self.add(node)
        assert isinstance(added, FollowerAdded), added

    async def append_some(self, count: int, size: int = 100) -> None:
        session = await self.session(self.led_by, SHARD)
        for request in range(1, count + 1):
            body = (b"%d of %d" % (request, session)).ljust(size)
            base = await self.appended(self.led_by, SHARD, session, request, body)
            assert base is not None

    def trim(self, first: int) -> None:
        incarnation = self.members[self.led_by].incarnation
        asked = Envelope(SHARD, "by hand", 0, self.led_by, incarnation, Trim(self.epoch, first))
        self.nodes[self.led_by].receive(asked)

    def slow_down(self, node: str, bytes_per_s: int) -> None:
        """What it sends to one who lacks old entries."""
        self.nodes[node].pace = Pace(PaceLimits(bytes_per_s))

    async def until_equal(self) -> None:
        while True:
            found = [self.replica(node) for node in self.names if node in self.nodes]
            ends = {(each.log.first, each.log.end, each.durable_end) for each in found}
            heads = {each.log.head_checksum for each in found}
            if len(ends) == len(heads) == 1 and not any(each.syncing for each in found):
                return
            await asyncio.sleep(0.01)

    def sent_bytes(self, to: str) -> int:
        lead = self.replica(self.led_by).lead
        assert lead is not None
        return lead.cursors[self.members[to]].sent_bytes
