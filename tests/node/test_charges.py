"""What is under way stays charged until it is settled, whatever its client does meanwhile (S-07).

The replica answers nothing here: only the accounts are looked at.
"""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cluster_keys import KEY

from node.bodies import body_of
from shardlog.checksum import seal_body
from shardlog.protocol.failures import Illegal, NotReady, Overloaded
from shardlog.protocol.messages import Appended, ClientRefused
from shardlog_node.abandoned import AbandonedAppends
from shardlog_node.clients import REQUEST_COST_BYTES, Budget
from shardlog_node.data_plane import DataPlane, PlaneLimits
from shardlog_node.log_port import Answer, LogPort

BODY = body_of(bytes(200_000))
OTHER = body_of(b"another")
CHARGE = len(BODY) + REQUEST_COST_BYTES


class Plane(DataPlane):
    """Whose replicas take everything and say nothing; `ends` are those of the shard's log."""

    def __init__(self) -> None:
        super().__init__("a", PlaneLimits(inflight_bytes_max=1 << 20), time.time_ns, KEY)
        lead: Any = SimpleNamespace(lead=True, log=SimpleNamespace(end=10), commit=4)
        self.replica = lead
        hosted = SimpleNamespace(replica=lead)
        cast(Any, self).host = SimpleNamespace(
            replicas={"orders": hosted}, receive_all=lambda shard, envelopes: None
        )
        cast(Any, self).tails = SimpleNamespace(forget=lambda port: None)


def append(port: LogPort, request: int, body: bytes, seal: int | None = None) -> None:
    port.append(7, request, 1, seal_body(body) if seal is None else seal, body)


@pytest.mark.parametrize(
    ("second", "kind"), [(OTHER, NotReady), (b"x", Illegal)], ids=["another batch", "no batch"]
)
def test_S07_another_append_with_the_same_number_frees_nothing(second: bytes, kind: type):
    async def story() -> None:
        plane, answers = Plane(), list[Answer]()
        port = LogPort(plane, "orders", answers.append)
        for request in range(1, 6):
            append(port, request, BODY)
            append(port, request, second)
            append(port, request, BODY)  # a copy, which has the answer to the first
        refused = [each.refusal for each in answers if isinstance(each, ClientRefused)]
        assert [type(each) for each in refused] == [kind] * 5
        assert plane.budget.bytes == port.held_bytes == 5 * CHARGE
        append(port, 6, BODY)
        assert isinstance(answers[-1], ClientRefused)
        assert isinstance(answers[-1].refusal, Overloaded)
        for request in range(1, 6):
            port._channel.answer(Appended(7, request, request))
        assert plane.budget.bytes == port.held_bytes == 0

    asyncio.run(story())


def test_S07_what_a_client_leaves_behind_stays_charged_until_it_is_committed():
    async def story() -> None:
        plane = Plane()
        port = LogPort(plane, "orders")
        for request in range(1, 6):
            append(port, request, BODY)
        port.close()
        assert port.held_bytes == 0
        for _ in range(3):
            plane.abandoned.look()
            assert plane.budget.bytes == 5 * CHARGE
        answers = list[Answer]()
        append(LogPort(plane, "orders", answers.append), 6, BODY)
        assert isinstance(answers[0], ClientRefused)
        assert isinstance(answers[0].refusal, Overloaded)
        plane.replica.log.end = 99  # of what others have appended since
        plane.replica.commit = 10
        plane.abandoned.look()
        assert plane.budget.bytes == 0

    asyncio.run(story())


@pytest.mark.parametrize("ends", [None, (10, 10)], ids=["not led here", "all is committed"])
def test_S07_nothing_that_was_left_behind_waits(ends: tuple[int, int] | None):
    budget = Budget(100)
    abandoned = AbandonedAppends(budget, lambda shard: ends)
    assert budget.take(50)
    abandoned.add("orders", 50)
    abandoned.look()
    assert budget.bytes == 0


def test_S07_what_was_left_behind_is_given_back_when_the_shard_is_led_elsewhere():
    found: list[tuple[int, int] | None] = [(10, 4)]
    budget = Budget(100)
    abandoned = AbandonedAppends(budget, lambda shard: found[0])
    assert budget.take(50)
    abandoned.add("orders", 50)
    abandoned.look()
    assert budget.bytes == 50
    found[0] = None
    abandoned.look()
    assert budget.bytes == 0
