"""The client: one object for a cluster, with producers and readers of any number of shards.

It keeps one connection for each node that it talks to, finds leaders by itself, and follows them.
Every call ends: with what was asked for, or with a typed failure within its deadline.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import count
from random import Random
from types import TracebackType
from typing import Self

from shardlog.client.directory import Directory, directory_of
from shardlog.client.exchange import Exchange, registration_nonce
from shardlog.client.failures import ClientFailure, Closed, InvalidArgument
from shardlog.client.limits import LIMITS, REQUESTS_MAX, ClientLimits
from shardlog.client.links import Links
from shardlog.client.lookup import Lookup
from shardlog.client.numbered import NumberedProducer
from shardlog.client.patience import Deadline
from shardlog.client.producer import Producer
from shardlog.client.raw import NodeRoute, RawReader
from shardlog.client.reading import EntryStream
from shardlog.client.records import FIRST, Record, Start
from shardlog.client.route import Route
from shardlog.transport.compression import Compression
from shardlog.transport.frames import FIXED, FrameType, encode_register
from shardlog.transport.handshake import NAME_BYTES_MAX
from shardlog.where import cluster_url

_REGISTERED = FIXED[FrameType.REGISTERED]


class Client:
    """An async context manager; to be made and used within one event loop.

    `url` is `http://host:port`, a cluster's directory, or `shardlog://host:port,host:port`,
    addresses of nodes to try; without one it is `SHARDLOG_CLUSTER` of the environment, or the
    cluster that `shardlog local up` has started on this machine.  `tls_name` is whom the nodes'
    certificates must name, if not their hosts.  `name` is what nodes call this client.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        tls_name: str | None = None,
        limits: ClientLimits = LIMITS,
        name: str | None = None,
        directory: Directory | None = None,
    ) -> None:
        self.limits = limits
        self._directory = directory or directory_of(url or _cluster_url(), limits.directory_ms, tls)
        self._links = Links(name or f"client-{os.getpid()}", limits, tls, tls_name)
        self._routes: dict[str, Route] = {}
        self._node_routes: dict[tuple[str, str], Route] = {}
        self._producers: set[Producer] = set()
        self._streams: set[EntryStream] = set()
        self._nonces = count(1)
        self._random = Random()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What went wrong inside matters more than what `close` has to tell."""
        try:
            await self.close()
        except ClientFailure:
            if value is None:
                raise

    async def close(self) -> None:
        """Flush and close all producers, end all readers, and say goodbye to all nodes.

        Raises the first failure that nobody has seen: neither in a future nor from `flush`.
        """
        if self._closed:
            return
        self._closed = True
        closing = [producer.close() for producer in self._producers]
        found = await asyncio.gather(*closing, return_exceptions=True)
        for stream in list(self._streams):
            await stream.aclose()
        for route in (*self._routes.values(), *self._node_routes.values()):
            await route.close()
        await self._links.close()
        await self._directory.close()
        for failure in found:
            if isinstance(failure, BaseException):
                raise failure

    # --- appending -------------------------------------------------------------------------------

    def producer(
        self,
        shard: str,
        *,
        linger_ms: float = 2,
        batch_bytes: int = 256 << 10,
        compression: Compression = Compression.NONE,
        inflight_requests_max: int = REQUESTS_MAX,
        buffer_bytes_max: int = 32 << 20,
        deadline_ms: int | None = None,
    ) -> Producer:
        """Something that appends to a shard, under a session of its own.

        A batch waits `linger_ms` for more records while others are under way; at `batch_bytes` it
        is full.  `deadline_ms` counts for each batch from its first record on.
        """
        made = Producer(
            self._exchange(shard),
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            compression=compression,
            inflight_requests_max=inflight_requests_max,
            buffer_bytes_max=buffer_bytes_max,
            deadline_ms=self.limits.deadline_ms if deadline_ms is None else deadline_ms,
            on_closed=self._producers.discard,
        )
        self._producers.add(made)
        return made

    async def register(
        self, shard: str, *, nonce: int | None = None, deadline_ms: int | None = None
    ) -> int:
        """Open a session for `numbered`, and return its name; one, however often it takes.

        A `nonce`, a number from 2**62 to 2**63, gives the session that was opened with it, as long
        as the leader keeps that.
        """
        what = f"opening a session of {shard!r}"
        exchange, nonce = self._exchange(shard), nonce or registration_nonce()
        frame = await exchange.ask(what, encode_register, self._deadline(deadline_ms), nonce=nonce)
        session: int = _REGISTERED.unpack(frame.payload)[1]
        return session

    def numbered(
        self, shard: str, session: int, last: int = 0, *, deadline_ms: int | None = None
    ) -> NumberedProducer:
        """Something that goes on with a session after its request `last`."""
        ms = self.limits.deadline_ms if deadline_ms is None else deadline_ms
        return NumberedProducer(self._exchange(shard), session, last, ms)

    # --- reading ---------------------------------------------------------------------------------

    def batches(
        self,
        shard: str,
        start: Start = FIRST,
        end: int | None = None,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> EntryStream:
        """Whole batches, up to where the log ends as a quorum confirms it now, or to `end`.

        The first batch may begin before `start` and the last end behind `end`: a batch is never
        cut.  `deadline_ms` is for every single question to the cluster.  With `from_first_kept` a
        start that has been trimmed is moved to the first offset that is kept.
        """
        return self._stream(shard, start, end, deadline_ms, from_first_kept, follow=False)

    def tail_batches(
        self,
        shard: str,
        start: Start = FIRST,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> EntryStream:
        """Whole batches, and the next ones as they are committed, without end."""
        return self._stream(shard, start, None, deadline_ms, from_first_kept, follow=True)

    def read(
        self,
        shard: str,
        start: Start = FIRST,
        end: int | None = None,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> AsyncIterator[Record]:
        """Records with offsets in `[start, end)`, as far as the log reaches now."""
        return self._records(
            self._stream(shard, start, end, deadline_ms, from_first_kept, follow=False)
        )

    def tail(
        self,
        shard: str,
        start: Start = FIRST,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> AsyncIterator[Record]:
        """Records from `start` on, and the next ones as they are committed, without end."""
        return self._records(
            self._stream(shard, start, None, deadline_ms, from_first_kept, follow=True)
        )

    async def shards(self) -> list[str]:
        """The names of all shards, from whoever serves `http://`; addresses do not tell them."""
        return await self._directory.names()

    async def locate(self, shard: str, timestamp_ms: int, *, deadline_ms: int | None = None) -> int:
        """The offset of the first committed entry not older than that; the end if there is none."""
        lookup = Lookup(self._exchange(shard))
        return (await lookup.locate(timestamp_ms, self._deadline(deadline_ms))).offset

    async def first(self, shard: str, *, deadline_ms: int | None = None) -> int:
        """The first offset that is kept."""
        return await Lookup(self._exchange(shard)).first(self._deadline(deadline_ms))

    async def end(self, shard: str, *, deadline_ms: int | None = None) -> int:
        """The offset behind all that is committed, as a quorum confirms it now."""
        return await Lookup(self._exchange(shard)).end(self._deadline(deadline_ms))

    def raw(
        self, shard: str, *, node: str | None = None, deadline_ms: int | None = None
    ) -> RawReader:
        """Entries as they stand in the log, of the leader or in one node's own copy."""
        exchange = self._exchange(shard)
        if node is not None:
            route = self._node_routes.get((shard, node))
            if route is None:
                route = NodeRoute(shard, self._directory, self._links, self.limits, node)
                self._node_routes[shard, node] = route
            exchange = Exchange(route, self._nonces, self._random)
        ms = self.limits.deadline_ms if deadline_ms is None else deadline_ms
        return RawReader(exchange, ms, own=node is not None)

    # --- parts -----------------------------------------------------------------------------------

    def _stream(
        self,
        shard: str,
        start: Start,
        end: int | None,
        deadline_ms: int | None,
        from_first_kept: bool,
        *,
        follow: bool,
    ) -> EntryStream:
        if (isinstance(start, int) and start < 0) or (end is not None and end < 0):
            raise InvalidArgument("offsets are not negative")
        return EntryStream(
            self._exchange(shard),
            start,
            end,
            self.limits.deadline_ms if deadline_ms is None else deadline_ms,
            follow=follow,
            from_first_kept=from_first_kept,
            running=self._streams,
        )

    async def _records(self, stream: EntryStream) -> AsyncIterator[Record]:
        async with aclosing(stream):
            async for batch in stream:
                for record in stream.records(batch):
                    yield record

    def _exchange(self, shard: str) -> Exchange:
        if self._closed:
            raise Closed("the client is closed")
        if not shard or len(shard.encode()) > NAME_BYTES_MAX:
            raise InvalidArgument(f"a shard's name has 1 to {NAME_BYTES_MAX} bytes")
        route = self._routes.get(shard)
        if route is None:
            route = self._routes[shard] = Route(shard, self._directory, self._links, self.limits)
        return Exchange(route, self._nonces, self._random)

    def _deadline(self, deadline_ms: int | None) -> Deadline:
        ms = self.limits.deadline_ms if deadline_ms is None else deadline_ms
        return Deadline(ms, asyncio.get_running_loop().time)


def _cluster_url() -> str:
    try:
        return cluster_url()
    except LookupError as failure:
        raise InvalidArgument(str(failure)) from failure
