"""Nodes are looked at, rather than shards: a hundred calls a second do for a thousand shards.

Every node that hosts something is asked for its news, again and again.  A node that stops to
answer, or where nobody listens any more, brings all shards to attention that it leads; the others
need nothing from it.  A node that answers again, or in another life, brings all that it hosts.  And
a node tells of which of its replicas something has changed: who lost its leader, or its quorum, or
is about to stop.

What a node says is never judged here: the shard looks for itself, and decides by what it finds.  If
a node knows of no news, all that it hosts is looked at closely all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from shardlog.coordinator.driver import (
    CannotLook,
    Control,
    DriverLimits,
    NotListening,
    Unanswered,
)
from shardlog.transport.control_calls import NodeNews


class Attention(Protocol):
    """Who cares for what becomes of nodes."""

    def hosted_changed(self, node: str, shards: Iterable[str] | None) -> None:
        """Something is new of these shards there, or of all."""

    def fell_silent(self, node: str) -> None:
        """No answer."""

    def nobody_listens(self, node: str) -> None:
        """The machine is there, and the process is not."""


class State(Enum):
    UNKNOWN = "unknown"
    ANSWERS = "answers"
    SILENT = "silent"
    GONE = "gone"


class NodeWatch:
    """`keep` tells which nodes to look at.  The tasks belong to `group`, and end with it."""

    def __init__(
        self, control: Control, limits: DriverLimits, attention: Attention, group: asyncio.TaskGroup
    ) -> None:
        self._control = control
        self._limits = limits
        self._attention = attention
        self._group = group
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def keep(self, node: str) -> None:
        if node not in self._tasks:
            self._tasks[node] = self._group.create_task(self._watch(node))

    def drop(self, node: str) -> None:
        task = self._tasks.pop(node, None)
        if task is not None:
            task.cancel()

    async def _watch(self, node: str) -> None:
        loop = asyncio.get_running_loop()
        known, state = NodeNews(0, 0, ()), State.UNKNOWN
        while True:
            again = loop.time() + self._limits.look_ms / 1000
            known, state = await self._look(node, known, state)
            await asyncio.sleep(max(0, again - loop.time()))

    async def _look(self, node: str, known: NodeNews, before: State) -> tuple[NodeNews, State]:
        try:
            news = await self._control.look(
                node, known.life, known.number, self._limits.look_timeout_ms
            )
        except CannotLook:
            self._attention.hosted_changed(node, None)
            return known, State.ANSWERS
        except NotListening:
            if before is not State.GONE:
                self._attention.nobody_listens(node)
            return known, State.GONE
        except Unanswered:
            if before not in (State.SILENT, State.GONE):
                self._attention.fell_silent(node)
            return known, State.SILENT
        if before is not State.ANSWERS or news.life != known.life:
            self._attention.hosted_changed(node, None)
        elif news.shards:
            self._attention.hosted_changed(node, news.shards)
        return news, State.ANSWERS
