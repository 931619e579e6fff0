"""Calls to nodes over the control plane, as the driver of a coordinator makes them.

Nodes know no others but those they are told of, so every call brings along where the data plane of
each node is that its message speaks of, and of no other.  Whatever goes wrong on the way is one
thing for a coordinator: no answer.

But for one thing: that nobody listens any more tells a process that was killed from one that is
slow or out of reach.  gRPC does not tell the two apart, so a call that found no connection is
followed by a plain attempt to connect, whose outcome is an error number of the system's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass

from shardlog.coordinator.driver import NotListening, Unanswered
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Envelope, Message
from shardlog.transport.control import ControlClient
from shardlog.transport.failures import TransportFailure, Unreachable

AddressOf = Callable[[str], str | None]
"""host:port of a node by its name; None if it is not known (now)."""
CONNECT_MS_MAX = 100


class NodeControl:
    """`Control` for real nodes.  The addresses are asked for at each call: they may change."""

    def __init__(
        self, client: ControlClient, control_addresses: AddressOf, data_addresses: AddressOf
    ) -> None:
        self._client = client
        self._control_addresses = control_addresses
        self._data_addresses = data_addresses
        # What the latest call of each node came to, if it failed: for people.
        self.failures: dict[str, TransportFailure] = {}

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope | None:
        address = self._control_addresses(envelope.dst)
        if address is None:
            raise Unanswered(f"nobody knows where {envelope.dst} is")
        addresses = self._addresses(envelope.message)
        try:
            answer = await self._client.call(address, envelope, timeout_ms, addresses)
        except TransportFailure as failure:
            self.failures[envelope.dst] = failure
            if isinstance(failure, Unreachable) and await is_refused(address):
                raise NotListening(str(failure)) from failure
            raise Unanswered(str(failure)) from failure
        self.failures.pop(envelope.dst, None)
        return answer

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
