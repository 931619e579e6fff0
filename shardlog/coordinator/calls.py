"""Calls to nodes over the control plane, as the driver of a coordinator makes them.

Nodes know no others but those they are told of, so every call brings along where the data plane of
each node is that its message speaks of, and of no other.  Whatever goes wrong on the way is one
thing for a coordinator: no answer.

Questions how replicas are that go to the same node at about the same time travel together; each
gets its own answer, and one without an answer keeps no other waiting.

But for one thing: that nobody listens any more tells a process that was killed from one that is
slow or out of reach.  gRPC does not tell the two apart, so a call that found no connection is
followed by a plain attempt to connect, whose outcome is an error number of the system's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import TypeVar

from shardlog.coordinator.driver import CannotLook, Control, NotListening, Unanswered
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Envelope, Message, StatusRequest
from shardlog.transport.control import ControlClient
from shardlog.transport.control_calls import NewsRequest, NodeNews
from shardlog.transport.failures import (
    NotPermitted,
    TransportFailure,
    UnknownCall,
    Unreachable,
)

T = TypeVar("T")
AddressOf = Callable[[str], str | None]
"""host:port of a node by its name; None if it is not known (now)."""
CONNECT_MS_MAX = 100
GATHER_MS = 2
GATHERED_MAX = 500
GATHERED_TIMEOUT_MS = 1000
"""What is older tells nothing of a leader any more."""


@dataclass(frozen=True, slots=True)
class Question:
    """A `StatusRequest`, and who waits for the answer."""

    envelope: Envelope
    timeout_ms: int
    answer: asyncio.Future[Envelope | None]

    def settle(self, answer: Envelope | Unanswered | None) -> None:
        """Whoever asked may have given up meanwhile."""
        if self.answer.done():
            return
        if isinstance(answer, Unanswered):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class NodeControl(Control):
    """`Control` for real nodes.  The addresses are asked for at each call: they may change."""

    def __init__(
        self,
        client: ControlClient,
        control_addresses: AddressOf,
        data_addresses: AddressOf,
        refused: Callable[[str, str], None] = lambda node, why: None,
    ) -> None:
        """`refused` is told once of a node that does not permit our calls, and why."""
        self._client = client
        self._refused = refused
        self._control_addresses = control_addresses
        self._data_addresses = data_addresses
        # What the latest call of each node came to, if it failed: for people.
        self.failures: dict[str, TransportFailure] = {}
        # Questions that wait for others to go along with, by node.
        self._gathered: dict[str, list[Question]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        # Addresses of nodes that take one question at a time only.
        self._singly: set[str] = set()
        self._refusals: dict[str, asyncio.Task[bool]] = {}

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope | None:
        address = self._address(envelope.dst)
        if isinstance(envelope.message, StatusRequest) and address not in self._singly:
            return await self._gather(envelope, timeout_ms)
        addresses = self._addresses(envelope.message)
        return await self._tried(
            envelope.dst, address, self._client.call(address, envelope, timeout_ms, addresses)
        )

    async def look(self, node: str, life: int, since: int, timeout_ms: int) -> NodeNews:
        address = self._address(node)
        asked = NewsRequest(node, life, since)
        try:
            return await self._tried(node, address, self._client.news(address, asked, timeout_ms))
        except Unanswered as failure:
            if isinstance(failure.__cause__, UnknownCall):
                raise CannotLook(node) from failure
            raise

    def _address(self, node: str) -> str:
        address = self._control_addresses(node)
        if address is None:
            raise Unanswered(f"nobody knows where {node} is")
        return address

    async def _tried(self, node: str, address: str, calling: Awaitable[T]) -> T:
        """Whatever becomes of a call is remembered, and is an answer or none."""
        try:
            answer = await calling
        except TransportFailure as failure:
            before = self.failures.get(node)
            self.failures[node] = failure
            if isinstance(failure, NotPermitted) and not isinstance(before, NotPermitted):
                self._refused(node, str(failure))
            if isinstance(failure, Unreachable) and await self._is_refused(address):
                raise NotListening(str(failure)) from failure
            raise Unanswered(str(failure)) from failure
        self.failures.pop(node, None)
        return answer

    async def _is_refused(self, address: str) -> bool:
        """Many calls fail at once where a node is gone: one attempt to connect does for all."""
        trying = self._refusals.get(address)
        if trying is None:
            trying = asyncio.create_task(is_refused(address))
            self._refusals[address] = trying
            trying.add_done_callback(lambda _: self._refusals.pop(address, None))
        return await asyncio.shield(trying)

    # --- many at once ----------------------------------------------------------------------------

    async def _gather(self, envelope: Envelope, timeout_ms: int) -> Envelope | None:
        loop = asyncio.get_running_loop()
        gathered = self._gathered.setdefault(envelope.dst, [])
        if not gathered:
            loop.call_later(GATHER_MS / 1000, self._send, envelope.dst)
        question = Question(envelope, timeout_ms, loop.create_future())
        gathered.append(question)
        if len(gathered) >= GATHERED_MAX:
            self._send(envelope.dst)
        return await question.answer

    def _send(self, node: str) -> None:
        gathered = self._gathered.pop(node, None)
        if gathered:
            task = asyncio.create_task(self._ask(node, gathered))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, node: str, questions: list[Question]) -> None:
        """Whoever asked is answered, whatever happens."""
        try:
            answers = await self._answers(node, questions)
        except Unanswered as failure:
            if isinstance(failure.__cause__, UnknownCall):
                self._singly.add(self._address(node))
                await asyncio.gather(*[self._ask_singly(each) for each in questions])
                return
            answers = [type(failure)(str(failure)) for _ in questions]
        for question, answer in zip(questions, answers, strict=True):
            question.settle(answer)

    async def _answers(self, node: str, questions: list[Question]) -> list[Envelope | Unanswered]:
        address = self._address(node)
        timeout_ms = min(GATHERED_TIMEOUT_MS, *[each.timeout_ms for each in questions])
        envelopes = [each.envelope for each in questions]
        asking = self._client.status_of_many(address, envelopes, timeout_ms)
        found = await self._tried(node, address, asking)
        return [each or Unanswered(f"{node} has no answer now") for each in found]

    async def _ask_singly(self, question: Question) -> None:
        try:
            question.settle(await self.call(question.envelope, question.timeout_ms))
        except Unanswered as failure:
            question.settle(failure)

    def _addresses(self, message: Message) -> dict[str, str]:
        where = {node: self._data_addresses(node) for node in sorted(nodes_of(message))}
        return {node: address for node, address in where.items() if address is not None}


async def is_refused(address: str) -> bool:
    """Whether a machine is at `address` and nobody listens there."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_MS_MAX / 1000):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return False


def nodes_of(message: Message) -> set[str]:
    """The nodes that a message speaks of."""
    return {member.node for member in _members(message)}


def _members(part: object) -> Iterator[Member]:
    if isinstance(part, Member):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            yield from _members(each)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _members(getattr(part, field.name))
