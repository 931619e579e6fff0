"""Frames that have begun: those who finish nothing go first, and no more of them than need be."""

from collections.abc import Callable
from typing import Any, cast

from shardlog.transport.handshake import Reason
from shardlog_node.unfinished import Unfinished, UnfinishedFrame


class Connection:
    """`begin` is called when so much of a frame has come."""

    begin: Callable[[int], None]

    def __init__(self) -> None:
        self.closed = False

    def count_unfinished(self, count: Callable[[int], None], may_reserve: object) -> None:
        self.begin = count

    def close(self, reason: Reason, why: str) -> None:
        self.closed = True


def test_no_more_are_dismissed_than_need_be_the_longest_idle_first():
    frames = Unfinished(10)
    connections = [Connection() for _ in range(4)]
    made = [UnfinishedFrame(frames, cast(Any, each)) for each in connections]
    for number, frame in enumerate(made):
        for _ in range(number):
            frame.look()
    made[3].finished()
    for connection in connections:
        connection.begin(3)
    assert [each.closed for each in connections] == [False, False, True, False]
    assert frames.bytes == 9
    connections[0].begin(4)
    assert not connections[1].closed
    connections[0].begin(0)
    assert frames.bytes == 6
