"""A request and its answer: one attempt, or as many as a deadline allows.

An attempt that goes unanswered is not simply waited for: after `attempt_ms` the client asks who
leads now, and goes there.  Only requests that may be repeated pass here; what is appended has its
sessions for that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from itertools import count
from random import Random

from shardlog.client.failures import (
    Busy,
    ClientFailure,
    DeadlineExceeded,
    EntryLost,
    NoAnswer,
    NoLeader,
    OffsetTrimmed,
    Refused,
    Repairing,
    Unavailable,
)
from shardlog.client.link import Answer, Channel
from shardlog.client.patience import Backoff, Deadline
from shardlog.client.route import Route
from shardlog.protocol import failures as refusals
from shardlog.protocol.failures import Refusal
from shardlog.transport.frames import Buffer, Frame

Request = Callable[[int, int], list[Buffer]]
"""(channel, nonce) → frame."""

_ELSEWHERE = (refusals.NotLeader, refusals.NoReplica, refusals.WrongRole, refusals.StaleEpoch)
_LATER = (refusals.NotReady, refusals.Overloaded)


def failure_of(shard: str, refusal: Refusal) -> ClientFailure:
    """What a refusal means to a client."""
    if isinstance(refusal, _ELSEWHERE):
        return NoLeader(f"asked one that does not lead {shard!r}: {refusal}")
    if isinstance(refusal, _LATER):
        return Busy(f"the leader of {shard!r} is busy: {refusal}")
    if isinstance(refusal, refusals.CorruptEntry):
        return Repairing(shard, *refusal.entry)
    if isinstance(refusal, refusals.OffsetTrimmed):
        return OffsetTrimmed(shard, refusal.first)
    if isinstance(refusal, refusals.EntryLost):
        return EntryLost(shard, refusal.first, refusal.end)
    return Refused(shard, refusal)


def registration_nonce() -> int:
    """What tells one registration from all others, and from the nonces of calls."""
    return 1 << 62 | secrets.randbits(62)


class Exchange:
    """Requests to the leader of one shard: reads, and what must not wait for them."""

    def __init__(self, route: Route, nonces: count[int], random: Random) -> None:
        self.route = route
        self.limits = route.limits
        self._nonces = nonces
        self._random = random

    def backoff(self) -> Backoff:
        limits = self.limits
        return Backoff(limits.backoff_first_ms, limits.backoff_most_ms, self._random.random)

    async def ask(
        self,
        what: str,
        request: Request,
        deadline: Deadline,
        tail_wait_ms: int = 0,
        nonce: int | None = None,
    ) -> Frame:
        """The answer, from whoever leads, however often it takes within the deadline.

        Each attempt has a nonce of its own, unless one is given.  `tail_wait_ms` is how long the
        node may wait for news: tails do not stand in the way of other reads.
        """
        backoff = self.backoff()
        last: ClientFailure | None = None
        try:
            async with asyncio.timeout_at(deadline.at):
                while True:
                    channel: Channel | None = None
                    try:
                        channel = await self.route.leader()
                        link = channel.link
                        async with link.tails if tail_wait_ms else link.reads:
                            return await self.once(channel, request, tail_wait_ms, nonce)
                    except Unavailable as failure:
                        last = failure
                    if channel is not None:
                        await self.route.hindered(channel, last)
                    await asyncio.sleep(backoff.next_ms() / 1000)
        except TimeoutError as failure:
            raise DeadlineExceeded(what, deadline.ms, last) from failure

    async def once(
        self, channel: Channel, request: Request, expected_ms: int = 0, nonce: int | None = None
    ) -> Frame:
        """One attempt; a refusal is raised as what it means."""
        if nonce is None:
            nonce = next(self._nonces)
        answer = await channel.call(nonce, request(channel.number, nonce))
        try:
            said = await self._awaited(channel, answer, expected_ms)
        finally:
            channel.forget(nonce)
        if isinstance(said, Frame):
            return said
        failure = failure_of(self.route.shard, said)
        if isinstance(failure, NoLeader):
            self.route.refused(channel, said)
        raise failure

    async def _awaited(
        self, channel: Channel, answer: asyncio.Future[Answer], expected_ms: int
    ) -> Answer:
        """An answer that is late is waited for while the same node leads, and twice as long."""
        limits = self.limits
        wait_ms = expected_ms + limits.attempt_ms
        await asyncio.wait([answer], timeout=wait_ms / 1000)
        looks = limits.attempt_ms // limits.tick_ms
        while not answer.done() and looks and not await self.route.reconsider(channel):
            looks -= 1
            await asyncio.wait([answer], timeout=limits.tick_ms / 1000)
        if not answer.done():
            raise NoAnswer(f"{channel.link.address} has not answered for {wait_ms} ms and more")
        return answer.result()
