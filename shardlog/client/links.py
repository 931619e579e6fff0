"""All connections of a client: one for each node, opened when it is first needed."""

from __future__ import annotations

import asyncio
import ssl
import time

from shardlog.client.background import result_of, start
from shardlog.client.directory import split_address
from shardlog.client.failures import Closed, NodeRejected, Unreachable
from shardlog.client.limits import ClientLimits
from shardlog.client.link import Link
from shardlog.transport.endpoints import connect
from shardlog.transport.failures import (
    ClosedUngreeted,
    NotPermitted,
    TransportFailure,
    VersionMismatch,
)
from shardlog.transport.handshake import Role

CLOSINGS_MAX = 3


class Links:
    """Those who want the same node at once wait for the same attempt."""

    def __init__(
        self, name: str, limits: ClientLimits, tls: ssl.SSLContext | None, tls_name: str | None
    ) -> None:
        self._name = name
        self._limits = limits
        self._tls = tls
        self._tls_name = tls_name
        self._opening: dict[str, asyncio.Task[Link]] = {}
        self._open: dict[str, Link] = {}
        self._closed = False
        # How often in a row a node closed a connection that it had not greeted.
        self._closings: dict[str, int] = {}

    async def at(self, address: str) -> Link:
        """The link to the node at an address; `Unreachable` or `NodeRejected` if there is none."""
        if self._closed:
            raise Closed("the client is closed")
        link = self._open.get(address)
        if link is not None and link.is_open:
            return link
        opening = self._opening.get(address)
        if opening is None:
            opening = start(self._connect(address))
            opening.add_done_callback(lambda _: self._opening.pop(address))
            self._opening[address] = opening
        return await result_of(opening)

    async def _connect(self, address: str) -> Link:
        link = Link(address, self._limits.reads_max, self._limits.tails_max)
        try:
            host, port = split_address(address)
            await connect(
                host,
                port,
                name=self._name,
                role=Role.CLIENT,
                receiver=link,
                limits=self._limits.connection,
                wall_ns=time.time_ns,
                timeout_ms=self._limits.connect_ms,
                tls=self._tls,
                tls_name=self._tls_name,
            )
        except (NotPermitted, VersionMismatch) as failure:
            raise NodeRejected(address, str(failure)) from failure
        except ClosedUngreeted as failure:
            raise self._closed_ungreeted(address) from failure
        except TransportFailure as failure:
            raise Unreachable(str(failure)) from failure
        self._closings.pop(address, None)
        self._open = {at: each for at, each in self._open.items() if each.is_open}
        self._open[address] = link
        return link

    def _closed_ungreeted(self, address: str) -> NodeRejected | Unreachable:
        """In TLS 1.3 a node learns of our certificate when the handshake is over for us, and all
        that asyncio's does about a bad one is to close.  A node that stops may do so once too.
        """
        if self._tls is None:
            return Unreachable(f"{address} closes connections unanswered: does it want TLS?")
        count = self._closings[address] = self._closings.get(address, 0) + 1
        why = "it closes connections after the handshake: it wants a client certificate, or a "
        why += "valid one of its own authority"
        rejected = count >= CLOSINGS_MAX
        return NodeRejected(address, why) if rejected else Unreachable(f"{address}: {why}")

    async def close(self) -> None:
        """Say goodbye to everyone."""
        self._closed = True
        for opening in list(self._opening.values()):
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        links = [link for link in self._open.values() if link.is_open]
        for link in links:
            link.connection.close()
        for link in self._open.values():
            await link.connection.closed()
