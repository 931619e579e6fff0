"""Who runs, for people: a key bound to a lease, which goes by itself when its holder does.

Nothing is decided by it.  A lease says that somebody was there a while ago, and a process that was
paused for longer does not know that its lease is gone; correctness rests on compare-and-swap and
epochs alone.  But "two operators run, one since yesterday" is worth seeing, and a list that a
killed process stays in for ever is not.  Keeping a lease alive writes nothing to etcd's log.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass

from shardlog.metadata.etcd.calls import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE
from shardlog.metadata.etcd.failures import LeaseGone
from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.failures import MetadataFailure, Unavailable
from shardlog.metadata.generated import etcd_pb2 as pb
from shardlog.metadata.store import ABSENT, MetadataStore, Versioned, require_write

OPERATORS = "operators/"
FORMAT = 1
TTL_S = 30
RETRY_S = 1.0
GO_S = 1.0
"""An operator that stops does not wait longer for etcd than this; the lease will do."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One that runs, or did until less than a lease ago."""

    name: str
    version: str
    since_ms: int


class Presence:
    """`run` is a task for as long as the operator runs; `since_ms` is the wall clock's."""

    __slots__ = ("_key", "_lease", "_store", "_ttl_s", "_value")

    def __init__(
        self, store: EtcdStore, name: str, version: str, since_ms: int, ttl_s: int = TTL_S
    ) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._key = OPERATORS + name
        self._value = json.dumps(
            {"format": FORMAT, "version": version, "since_ms": since_ms}, separators=(",", ":")
        ).encode()
        self._lease = 0
        require_write(self._key, ABSENT, self._value)

    async def run(self) -> None:
        """Until cancelled, `Closed` or `Unusable`; then the key goes at once, if etcd answers."""
        try:
            while True:
                try:
                    await self._appear()
                    await self._stay()
                except LeaseGone:
                    continue
                except Unavailable:
                    await asyncio.sleep(RETRY_S)
        finally:
            await self._go()

    async def _appear(self) -> None:
        links = self._store.links
        if not self._lease:
            granted = await links.write(LEASE_GRANT, pb.LeaseGrantRequest(TTL=self._ttl_s))
            self._lease = granted.ID
        try:
            await self._write(self._lease)
        except LeaseGone:
            self._lease = 0
            raise

    async def _write(self, lease: int) -> None:
        found = await self._store.get(self._key)
        while True:
            version = found.version if found else ABSENT
            swapped = await self._store.swap_leased(self._key, version, self._value, lease)
            if swapped.done:
                return
            found = swapped.current

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            if not await self._renewed():
                self._lease = 0
                raise LeaseGone

    async def _renewed(self) -> bool:
        links = self._store.links
        timeout_s = links.settings.request_timeout_ms / 1000
        stream = await links.stream(LEASE_KEEP_ALIVE)
        try:
            await stream.write(pb.LeaseKeepAliveRequest(ID=self._lease), timeout_s)
            return bool((await stream.read(timeout_s)).TTL > 0)
        finally:
            links.end(stream)

    async def _go(self) -> None:
        if self._lease:
            with suppress(MetadataFailure, LeaseGone, TimeoutError):
                async with asyncio.timeout(GO_S):
                    request = pb.LeaseRevokeRequest(ID=self._lease)
                    await self._store.links.write(LEASE_REVOKE, request)


async def operators(store: MetadataStore) -> tuple[Operator, ...]:
    """Those who run, by name; of one that is newer, or says nothing sensible, only the name."""
    listing = await store.list(OPERATORS)
    return tuple(map(_operator, listing.records))


def _operator(record: Versioned) -> Operator:
    name = record.key.removeprefix(OPERATORS)
    try:
        value = json.loads(record.value)
        if value["format"] == FORMAT:
            return Operator(name, str(value["version"]), int(value["since_ms"]))
    except (ValueError, KeyError, TypeError):
        pass
    return Operator(name, "", 0)
