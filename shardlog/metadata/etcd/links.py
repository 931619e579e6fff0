"""Which member is asked, and when another one is.

All calls go to one member until it fails; then the next in the list is tried, and taken if it
answers a linearizable read, which shows that it is with the majority.  Connecting is apart from
asking, for one reason: what fails before the request left is certain not to have happened, so a
write may go on to the next member.  Once it has left, only a read may be repeated.

A member that is given up may still answer somebody.  Its connection is closed when the last one is
off it, so that nobody's call is torn down for a fault that another call had; streams, which go on
elsewhere without a loss, leave it at once.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from shardlog.metadata.etcd.calls import RANGE, TXN, Method
from shardlog.metadata.etcd.failures import is_about_certificates
from shardlog.metadata.etcd.link import Link, Stream
from shardlog.metadata.etcd.settings import EtcdSettings
from shardlog.metadata.failures import (
    CannotOpen,
    Closed,
    MetadataFailure,
    OutOfSpace,
    Unavailable,
    Unusable,
    Unwritten,
)

LINEARIZABLE = (RANGE, TXN)
"""Calls whose answers tell where the store stands, and not just one member of it."""
PAUSE_S = 0.1
"""Between two rounds over all members, while there is time."""


class Seen(NamedTuple):
    """What linearizable answers have told of the store."""

    cluster_id: int = 0
    raft_term: int = 0
    revision: int = 0


class Links:
    __slots__ = (
        "_at",
        "_closing",
        "_connecting",
        "_idle",
        "_link",
        "_seen",
        "_streams",
        "_under_way",
        "closed",
        "restores",
        "settings",
    )

    def __init__(self, settings: EtcdSettings) -> None:
        self.settings = settings
        self.closed = False
        # How often the store was seen to have gone back.
        self.restores = 0
        self._seen = Seen()
        self._at = 0
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._streams: dict[Stream, Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    # --- calls -----------------------------------------------------------------------------------

    async def read(self, method: Method, request: Any) -> Any:
        """Repeated elsewhere, as long as there is time."""
        return await self._call(method, request, repeatable=True)

    async def write(self, method: Method, request: Any) -> Any:
        """Sent once at most."""
        return await self._call(method, request, repeatable=False)

    async def _call(self, method: Method, request: Any, repeatable: bool) -> Any:
        self._under_way += 1
        self._idle.clear()
        before = self._seen
        try:
            answer = await self._answered(method, request, repeatable)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
        if method in LINEARIZABLE:
            self._look(before, answer.header)
        return answer

    async def _answered(self, method: Method, request: Any, repeatable: bool) -> Any:
        allowed_s = self.settings.request_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        deadline = loop.time() + allowed_s
        while True:
            try:
                link = await self.connected()
                left_s = max(deadline - loop.time(), allowed_s / 10)
                return await self._asked(
                    link, method, request, min(left_s, allowed_s / 2) if repeatable else left_s
                )
            except Unavailable as failure:
                may_repeat = repeatable or isinstance(failure, Unwritten)
                if not may_repeat or self.closed or loop.time() + PAUSE_S >= deadline:
                    raise
                if isinstance(failure, Unwritten):
                    await asyncio.sleep(PAUSE_S)

    async def _asked(self, link: Link, method: Method, request: Any, timeout_s: float) -> Any:
        link.users += 1
        try:
            return await link.unary(method, request, timeout_s)
        except Unavailable as failure:
            if not isinstance(failure, OutOfSpace):
                self._retire(link)
            raise
        finally:
            self._left(link)

    def _look(self, before: Seen, header: Any) -> None:
        """An answer is never behind what was known when it was asked for, unless by a restore."""
        now = Seen(header.cluster_id, header.raft_term, header.revision)
        if before.cluster_id and (
            now.cluster_id != before.cluster_id
            or now.raft_term < before.raft_term
            or now.revision < before.revision
        ):
            self.restores += 1
            self._seen = now
        elif now.cluster_id != self._seen.cluster_id:
            self._seen = now
        else:
            term, revision = self._seen.raft_term, self._seen.revision
            self._seen = Seen(now.cluster_id, max(term, now.raft_term), max(revision, now.revision))

    # --- streams ---------------------------------------------------------------------------------

    async def stream(self, method: Method) -> Stream:
        """To be given back to `end`."""
        link = await self.connected()
        stream = link.stream(method)
        link.users += 1
        self._streams[stream] = link
        return stream

    def end(self, stream: Stream, failed: bool = False) -> None:
        link = self._streams.pop(stream, None)
        if link is None:
            return
        stream.close()
        if failed:
            self._retire(link)
        self._left(link)

    # --- connections -----------------------------------------------------------------------------

    async def connected(self) -> Link:
        """The member that is asked now; `Unwritten` if there is none."""
        if self.closed:
            raise Closed(self.settings.where)
        link = self._link
        if link is not None:
            if link.is_connected:
                return link
            self._retire(link)
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="shardlog-etcd connect")
            self._connecting.add_done_callback(self._connect_ended)
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            # Nobody cancelled the caller, so it was `close` that cancelled the connecting.
            raise Closed(self.settings.where) from None

    def _connect_ended(self, connecting: asyncio.Task[Link]) -> None:
        self._connecting = None
        if not connecting.cancelled():
            # Those who asked for it may all be gone.
            connecting.exception()

    async def _connect(self) -> Link:
        """The first member, from where we are in the list, that answers."""
        count = len(self.settings.endpoints)
        why: list[str] = []
        unusable: list[Unusable] = []
        for number in range(count):
            at = (self._at + number) % count
            link = self._new_link(self.settings.endpoints[at])
            try:
                header = await link.connect(self.settings.connect_timeout_ms / 1000)
            except TimeoutError:
                why.append(f"{link.endpoint}: no answer in time")
            except Unavailable as failure:
                why.append(str(failure))
            except Unusable as failure:
                why.append(str(failure))
                unusable.append(failure)
            except asyncio.CancelledError:
                await link.close()
                raise
            else:
                self._at = at
                self._link = link
                if not self._seen.cluster_id:
                    self._look(self._seen, header)
                return link
            await link.close()
        raise self._no_member(why, unusable)

    def _no_member(self, why: list[str], unusable: list[Unusable]) -> MetadataFailure:
        if len(unusable) == len(why):
            return unusable[0]
        if not self._seen.cluster_id and all(map(is_about_certificates, why)):
            # Of a store that never answered this is a mistake, later on it may be a renewal.
            return CannotOpen(self.settings.where, "; ".join(why))
        return Unwritten(self.settings.where, "; ".join(why))

    def _new_link(self, endpoint: str) -> Link:
        """Files that cannot be read are a mistake at first, later they may just be replaced."""
        try:
            return Link(self.settings, endpoint)
        except CannotOpen as failure:
            if self._seen.cluster_id:
                raise Unwritten(failure.where, failure.why) from None
            raise

    def _retire(self, link: Link) -> None:
        if link.retired:
            return
        link.retired = True
        for stream, on in self._streams.items():
            if on is link:
                stream.give_up()
        if self._link is link:
            self._link = None
            self._at = (self._at + 1) % len(self.settings.endpoints)
        if not link.users:
            self._close_soon(link)

    def _left(self, link: Link) -> None:
        link.users -= 1
        if link.retired and not link.users:
            self._close_soon(link)

    def _close_soon(self, link: Link) -> None:
        closing = asyncio.create_task(link.close(), name="shardlog-etcd close")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def asked_apart(self, endpoint: str, method: Method, request: Any) -> Any:
        """One call to this very member, on a connection of its own."""
        link = self._new_link(endpoint)
        try:
            return await link.unary(method, request, self.settings.connect_timeout_ms / 1000)
        finally:
            await link.close()

    async def close(self) -> None:
        """Requests that have left are answered first."""
        if self.closed:
            return
        self.closed = True
        if self._connecting:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        for stream in list(self._streams):
            self.end(stream)
        await self._idle.wait()
        if self._link:
            self._retire(self._link)
        if self._closing:
            await asyncio.wait(self._closing)
