"""A watch of etcd that outlives its connection.

A stream of etcd is thrown away at the first sign of trouble, also when a read is cancelled: the
watch is its position, and a new stream goes on there.  So nothing is lost and nothing is told
twice, provided that the position moves on only over whole revisions.  An answer that etcd sends in
pieces may end within one; what came of it is held back until the rest is there.

Before a stream is opened the store is asked, linearizably, where it stands.  etcd itself would let
a watch wait for a revision that is not there yet; if the store was restored from a backup, that
would be for changes it has already missed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shardlog.metadata.etcd.calls import RANGE, WATCH, end_of, watch_request
from shardlog.metadata.etcd.failures import Compacted
from shardlog.metadata.etcd.link import Stream
from shardlog.metadata.failures import Closed, NotPermitted, Unavailable
from shardlog.metadata.generated import etcd_pb2 as pb
from shardlog.metadata.store import Change, News, Relisted
from shardlog.metadata.watching import Page, PagedWatch

if TYPE_CHECKING:
    from shardlog.metadata.etcd.store import EtcdStore

RETRY_S_MIN = 0.1
RETRY_S_MAX = 2.0


class EtcdChanges:
    """Pages of changes, pulled from one stream after the other; a page is one answer of etcd."""

    __slots__ = ("_held", "_restores", "_store", "_stream")

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._restores = store.links.restores
        self._stream: Stream | None = None
        # Changes of the last revision of an answer whose rest has not come.
        self._held: list[Change] = []

    async def page(self, prefix: str, from_revision: int) -> Page:
        retry_s = RETRY_S_MIN
        while True:
            try:
                if self._stream is None and await self._has_gone_back(prefix, from_revision):
                    return await self._all(prefix)
                if self._stream is None:
                    await self._open(prefix, from_revision)
                return await self._told(from_revision)
            except Compacted:
                self._drop()
                return await self._all_in_the_end(prefix)
            except Unavailable:
                self._drop(failed=True)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_S_MAX)
            except BaseException:
                self._drop()
                raise

    async def moved_on(self, seen: int) -> None:
        """At once: `page` itself waits for news."""

    async def _has_gone_back(self, prefix: str, from_revision: int) -> bool:
        links = self._store.links
        if links.closed:
            raise Closed(self._store.where)
        begin = self._store.inside(prefix)
        request = pb.RangeRequest(key=begin, range_end=end_of(begin), count_only=True)
        answer = await links.read(RANGE, request)
        return links.restores != self._restores or answer.header.revision < from_revision - 1

    async def _all(self, prefix: str) -> Page:
        restores = self._store.links.restores
        listing = await self._store.list(prefix)
        self._restores = restores
        return Page((Relisted(listing.revision, listing.records),), listing.next_revision)

    async def _all_in_the_end(self, prefix: str) -> Page:
        while True:
            try:
                return await self._all(prefix)
            except Unavailable:
                await asyncio.sleep(RETRY_S_MIN)

    # --- the stream ------------------------------------------------------------------------------

    async def _open(self, prefix: str, from_revision: int) -> None:
        settings = self._store.links.settings
        timeout_s = settings.request_timeout_ms / 1000
        self._stream = await self._store.links.stream(WATCH)
        begin = self._store.inside(prefix)
        await self._stream.write(watch_request(begin, from_revision), timeout_s)
        _require_alive(self._store.where, await self._stream.read(timeout_s))

    async def _told(self, from_revision: int) -> Page:
        assert self._stream
        answer = await self._stream.read()
        _require_alive(self._store.where, answer)
        changes = self._held + self._changes(answer)
        self._held = []
        if not answer.events:
            # etcd tells how far it is: all changes up to there have come.
            return Page((), max(from_revision, answer.header.revision + 1))
        last = answer.events[-1].kv.mod_revision
        if answer.fragment:
            self._held = [change for change in changes if change.revision == last]
            whole = changes[: len(changes) - len(self._held)]
            return Page(tuple(whole), last)
        return Page(tuple(changes), last + 1)

    def _changes(self, answer: Any) -> list[Change]:
        changes = []
        for event in answer.events:
            key = self._store.outside(event.kv.key)
            if key is not None:
                value = None if event.type == pb.Event.DELETE else event.kv.value
                changes.append(Change(event.kv.mod_revision, key, value))
        return changes

    def _drop(self, failed: bool = False) -> None:
        self._held = []
        if self._stream is not None:
            self._store.links.end(self._stream, failed)
            self._stream = None

    def close(self) -> None:
        self._drop()


def _require_alive(where: str, answer: Any) -> None:
    if not answer.canceled:
        return
    if answer.compact_revision:
        raise Compacted(answer.cancel_reason)
    if "permission denied" in answer.cancel_reason:
        raise NotPermitted(where, answer.cancel_reason)
    raise Unavailable(where, answer.cancel_reason or "the watch was cancelled")


class EtcdWatch(PagedWatch):
    __slots__ = ("_changes",)

    def __init__(self, store: EtcdStore, prefix: str, from_revision: int) -> None:
        self._changes = EtcdChanges(store)
        super().__init__(self._changes, prefix, from_revision)

    async def __anext__(self) -> News:
        try:
            return await super().__anext__()
        except Closed:
            # By `aclose`, while it was read: an end, not a failure.
            if self._closed:
                raise StopAsyncIteration from None
            raise

    async def aclose(self) -> None:
        await super().aclose()
        self._changes.close()
