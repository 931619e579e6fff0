"""When replicas are told of the time.

Those that have something to do with it, a leader that is appended to or one that lacks something,
are told at every turn.  Of the others, who only want to know whether somebody has fallen silent,
each turn tells a few, so that a node with a thousand shards at rest never wakes up for all of them
at once.  The turns are calls of the loop's, not a task that sleeps, which would cost more than what
it is woken for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from shardlog.protocol.replica import Replica

if TYPE_CHECKING:
    from shardlog_node.host import HostedReplica

REST_TURNS = 5
"""Replicas at rest are told of the time so much more rarely."""


class Ticking:
    """`turn` is called first, every `tick_ms`, until it raises or `stop`."""

    def __init__(
        self,
        replicas: Callable[[], Collection[HostedReplica]],
        is_draining: Callable[[], bool],
        tick_ms: int,
    ) -> None:
        self._replicas = replicas
        self._is_draining = is_draining
        self._tick_s = tick_ms / 1000
        self._busy: dict[HostedReplica, None] = {}
        self._turns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._turn: Callable[[int], None]
        self.ended: asyncio.Future[None]

    def start(self, turn: Callable[[int], None]) -> None:
        self._turn = turn
        self.ended = asyncio.get_running_loop().create_future()
        self._go_on()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def stepped(self, hosted: HostedReplica) -> None:
        """It may have something to do with time from now on."""
        if is_busy(hosted.replica):
            self._busy[hosted] = None

    def _go_on(self) -> None:
        try:
            self._turns += 1
            self._turn(self._turns)
            self._tick()
        except Exception as failure:
            self.ended.set_exception(failure)
            return
        after_s = self._tick_s if self._busy else self._tick_s * REST_TURNS
        self._timer = asyncio.get_running_loop().call_later(after_s, self._go_on)

    def _tick(self) -> None:
        draining = self._is_draining()
        for hosted in list(self._busy):
            if hosted.stopped or not is_busy(hosted.replica):
                del self._busy[hosted]
            else:
                hosted.tick(draining)
        resting = list(self._replicas())
        if self._busy:
            resting = resting[self._turns % REST_TURNS :: REST_TURNS]
        for hosted in resting:
            if hosted not in self._busy:
                hosted.tick(draining)


def is_busy(replica: Replica) -> bool:
    lead = replica.lead
    if lead is not None and not lead.resting:
        return True
    return bool(replica.asked or replica.log.marks or replica.syncing is not None)
