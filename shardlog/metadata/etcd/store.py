"""The metadata store in etcd.

etcd's revisions are the store's and a key's `mod_revision` is its version, so every promise of
`metadata.store` is one that etcd makes itself: a swap is one transaction that compares
`mod_revision`, reads are linearizable, a watch is etcd's watch.  What is left to do here is to
find a member that answers (`links`), to go on where a watch broke off (`watching`), and to tell
what is certain of a write whose answer was lost: nothing.

All keys stand under the prefix of the settings, which callers do not see.  A handle writes only
when it is told to.
"""

from __future__ import annotations

from typing import Any, Self

from shardlog.metadata.etcd.calls import RANGE, TXN, end_of, swap_request
from shardlog.metadata.etcd.failures import Compacted, RequestRefused
from shardlog.metadata.etcd.health import NO_SPACE, EtcdHealth, health_of
from shardlog.metadata.etcd.links import Links
from shardlog.metadata.etcd.settings import EtcdSettings
from shardlog.metadata.etcd.watching import EtcdWatch
from shardlog.metadata.failures import BadKey, Closed, OutOfSpace, TooLarge
from shardlog.metadata.generated import etcd_pb2 as pb
from shardlog.metadata.store import (
    Listing,
    Swapped,
    Versioned,
    Watch,
    require_key,
    require_prefix,
    require_revision,
    require_write,
)

LIST_PAGE_RECORDS = 128
"""With the largest values, 8 MiB to an answer."""


class EtcdStore:
    """One handle: a connection to one member at a time, and a stream for each watch."""

    __slots__ = ("_full", "_prefix", "links")

    def __init__(self, settings: EtcdSettings) -> None:
        self.links = Links(settings)
        self._prefix = settings.prefix.encode()
        # What the last write was told, if that was that etcd has no space.
        self._full = ""

    @classmethod
    async def open(cls, settings: EtcdSettings | str) -> Self:
        """Connect to a member that answers.

        `Unavailable` if none does, now; `Unusable` if none will: wrong credentials, no etcd.
        """
        if isinstance(settings, str):
            settings = EtcdSettings.from_url(settings)
        store = cls(settings)
        try:
            await store.links.connected()
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def where(self) -> str:
        return self.links.settings.where

    async def get(self, key: str) -> Versioned | None:
        require_key(key)
        self._require_open()
        answer = await self.links.read(RANGE, pb.RangeRequest(key=self.inside(key)))
        return self._versioned(answer.kvs)

    async def list(self, prefix: str) -> Listing:
        require_prefix(prefix)
        self._require_open()
        while True:
            try:
                return await self._listing(self.inside(prefix))
            except Compacted:
                # Compacted between two pages, which is rare: begin again with a later revision.
                continue

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        require_write(key, version, value)
        return await self.swap_leased(key, version, value, 0)

    async def swap_leased(self, key: str, version: int, value: bytes | None, lease: int) -> Swapped:
        """A swap whose key goes when its lease does."""
        self._require_open()
        request = swap_request(self.inside(key), version, value, lease)
        try:
            answer = await self.links.write(TXN, request)
        except RequestRefused:
            raise TooLarge(key, len(value or b""), None) from None
        except OutOfSpace as failure:
            self._full = str(failure)
            raise
        self._full = ""
        if not answer.succeeded:
            return Swapped(False, self._versioned(answer.responses[0].response_range.kvs))
        if value is None:
            return Swapped(True, None)
        return Swapped(True, Versioned(key, answer.header.revision, value))

    def watch(self, prefix: str, from_revision: int) -> Watch:
        require_prefix(prefix)
        require_revision(from_revision)
        return EtcdWatch(self, prefix, from_revision)

    async def health(self) -> EtcdHealth:
        """How each member is, for people."""
        self._require_open()
        return await health_of(self.links)

    async def why_full(self) -> str:
        """Why writes fail though reads are answered; "" if they do not, for all that is known."""
        if self._full and not any(
            NO_SPACE in each.trouble for each in (await self.health()).members
        ):
            self._full = ""
        return self._full

    async def close(self) -> None:
        await self.links.close()

    # --- keys ------------------------------------------------------------------------------------

    def inside(self, key: str) -> bytes:
        """A key or prefix as etcd has it."""
        return self._prefix + key.encode()

    def outside(self, key: bytes) -> str | None:
        """None for a key that is not ours: no store of Shardlog could have written it."""
        found = key.removeprefix(self._prefix).decode(errors="replace")
        try:
            require_key(found)
        except BadKey:
            return None
        return found

    def _versioned(self, found: Any) -> Versioned | None:
        """Of an answer to one key."""
        for each in found:
            key = self.outside(each.key)
            assert key is not None
            return Versioned(key, each.mod_revision, each.value)
        return None

    # --- listing ---------------------------------------------------------------------------------

    async def _listing(self, prefix: bytes) -> Listing:
        """In pages, all of the revision that the first one had."""
        records: list[Versioned] = []
        revision, begin, more = 0, prefix, True
        while more:
            page = await self.links.read(
                RANGE,
                pb.RangeRequest(
                    key=begin,
                    range_end=end_of(prefix),
                    limit=LIST_PAGE_RECORDS,
                    revision=revision,
                ),
            )
            revision = revision or page.header.revision
            for each in page.kvs:
                key = self.outside(each.key)
                if key is not None:
                    records.append(Versioned(key, each.mod_revision, each.value))
            more = page.more
            if more:
                begin = page.kvs[-1].key + b"\x00"
        return Listing(revision, tuple(records))

    def _require_open(self) -> None:
        if self.links.closed:
            raise Closed(self.where)
