"""The way to a shard's leader, found again whenever it changes.

What is known is used until it fails: then a hint of whoever refused is followed, or the directory
is asked.  If the directory is silent, or knows no leaders, the nodes are tried one by one.  One
look-up is one attempt: who waits in between, and how long it goes on, is the caller's to say.
"""

from __future__ import annotations

import asyncio

from shardlog.client.background import result_of, start
from shardlog.client.directory import Directory, Placement
from shardlog.client.failures import (
    Busy,
    ClientFailure,
    DirectoryUnavailable,
    NoLeader,
    NowhereFound,
    Unavailable,
)
from shardlog.client.limits import ClientLimits
from shardlog.client.link import Channel
from shardlog.client.links import Links
from shardlog.protocol.failures import NotLeader, Refusal

BUSY_TIMES = 5
"""After so many refusals of the kind the directory is asked whether the same node leads."""


class Route:
    """One shard's, shared by everyone who talks to it."""

    def __init__(self, shard: str, directory: Directory, links: Links, limits: ClientLimits):
        self.shard = shard
        self.limits = limits
        self._directory = directory
        self._links = links
        # Those who look for the leader at once wait for the same look-up.
        self._finding: asyncio.Task[Channel] | None = None
        self._channel: Channel | None = None
        self._placement: Placement | None = None
        self._stale = True  # the placement has to be asked for anew
        self._hint: str | None = None
        self._followed = False  # a hint, the last time; two in a row may be a circle
        self._tried = 0
        self._busy = 0
        self._absent: set[str] = set()
        # What nodes call themselves, where only addresses are given.
        self._named: dict[str, str] = {}

    async def leader(self) -> Channel:
        """A channel to whoever may lead; `Unavailable` if nobody can be found at the moment."""
        found = self._channel
        if found is not None and found.usable:
            return found
        if self._finding is None:
            self._stale = self._stale or found is not None
            self._channel = None
            self._finding = start(self._find())
            self._finding.add_done_callback(self._found)
        return await result_of(self._finding)

    def _found(self, finding: asyncio.Task[Channel]) -> None:
        self._finding = None
        if not finding.cancelled() and finding.exception() is None:
            self._channel = finding.result()

    async def close(self) -> None:
        if self._finding is not None:
            finding = self._finding
            finding.cancel()
            await asyncio.gather(finding, return_exceptions=True)

    def refused(self, channel: Channel, refusal: Refusal) -> None:
        """Whoever is there does not lead, or holds no replica."""
        if self._channel is channel:
            self._channel = None
            self._hint = refusal.hint if isinstance(refusal, NotLeader) else None
            self._stale = True

    async def reconsider(self, channel: Channel) -> bool:
        """The channel's node has not helped for long: whether to look elsewhere.

        Where only addresses are given the others are tried, and say who leads.
        """
        if self._channel is not channel or not channel.usable:
            return True
        channel.link.connection.ping()
        try:
            placement = await self._directory.find(self.shard)
        except ClientFailure:
            return False
        self._placement = placement
        if placement.knows_leader:
            if placement.leader is None:
                return False
            if placement.addresses.get(placement.leader) == channel.link.address:
                return False
        if self._channel is channel:
            self._channel, self._hint, self._stale = None, None, False
        return True

    async def hindered(self, channel: Channel, failure: Unavailable) -> None:
        """A leader that is busy again and again may have been deposed without knowing it."""
        if isinstance(failure, Busy):
            self._busy += 1
            if self._busy % BUSY_TIMES == 0:
                await self.reconsider(channel)

    # --- one look-up -----------------------------------------------------------------------------

    async def _find(self) -> Channel:
        address = await self._next_address()
        try:
            link = await self._links.at(address)
            channel = await link.attach(self.shard, self.limits.attempt_ms)
        except Unavailable:
            self._stale = True
            self._absent.discard(address)
            raise
        self._named[link.name] = address
        if channel.usable:
            self._absent.clear()
            return channel
        self._stale = True
        self._note_absent(address)
        raise NoLeader(f"{address} holds no replica of {self.shard!r}")

    async def _next_address(self) -> str:
        hint, self._hint = self._hint, None
        address = self._address_of(hint) if hint is not None and not self._followed else None
        self._followed = address is not None
        if address is not None:
            return address
        placement = await self._asked()
        if placement.knows_leader and not self._stale:
            address = placement.addresses.get(placement.leader or "")
            if address is None:
                self._stale = True
                raise NoLeader(f"nobody leads {self.shard!r} at the moment")
            return address
        addresses = list(placement.addresses.values())
        if not addresses:
            raise NoLeader(f"no node of {self.shard!r} is known")
        self._tried += 1
        return addresses[(self._tried - 1) % len(addresses)]

    def _address_of(self, node: str) -> str | None:
        known = self._placement.addresses.get(node) if self._placement else None
        return known or self._named.get(node)

    async def _asked(self) -> Placement:
        """What the directory says; what it said before, if it does not answer."""
        if self._placement is not None and not self._stale:
            return self._placement
        try:
            self._placement = await self._directory.find(self.shard)
            self._stale = False
        except DirectoryUnavailable:
            if self._placement is None:
                raise
        return self._placement

    def _note_absent(self, address: str) -> None:
        """Where only addresses are given, a shard that none of them holds may not exist."""
        placement = self._placement
        if placement is None or placement.knows_leader:
            return
        self._absent.add(address)
        if self._absent >= set(placement.addresses.values()):
            raise NowhereFound(self.shard)
