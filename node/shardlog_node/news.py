"""Of which replicas on this node something has changed, for coordinators that look at nodes.

One look goes over all replicas; a coordinator makes ten of them a second, whatever the number of
shards.  Each change has a number, so that whoever missed an answer gets the same news again, and
any number of coordinators may ask.
"""

from __future__ import annotations

from shardlog.protocol.mood import Mood, mood_of
from shardlog.transport.control_calls import NewsRequest, NodeNews
from shardlog_node.host import NodeHost


class News:
    """`life` is a number that no other run of this node has."""

    def __init__(self, host: NodeHost, life: int) -> None:
        self._host = host
        self._life = life
        self._number = 0
        # None for a replica that cannot run.
        self._moods: dict[str, Mood | None] = {}
        self._changed: dict[str, int] = {}

    def tell(self, asked: NewsRequest) -> NodeNews:
        self._look()
        since = asked.since if asked.life == self._life else 0
        shards = tuple([shard for shard, number in self._changed.items() if number > since])
        return NodeNews(self._life, self._number, shards)

    def _look(self) -> None:
        host = self._host
        clock_ms = host.clock_ms()
        moods: dict[str, Mood | None] = dict.fromkeys(host.failed)
        for shard, hosted in host.replicas.items():
            moods[shard] = mood_of(hosted.replica, clock_ms)
        if moods == self._moods:
            return
        self._number += 1
        before = self._moods
        for shard, mood in moods.items():
            if shard not in before or before[shard] != mood:
                self._changed[shard] = self._number
        for shard in before.keys() - moods.keys():
            self._changed.pop(shard, None)
        self._moods = moods
