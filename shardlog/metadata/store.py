"""The metadata store: keys with versioned values, compare-and-swap, and a watch.

What every store promises, and the conformance suite tries:

- *One order.*  Every write of any key gets the next revision of the store.  A key's version is the
  revision of its last write, so it grows with each, also over a deletion (etcd: `mod_revision`).
- *Linearizable.*  `get`, `list` and `compare_and_swap` take effect at one instant between call and
  answer; a write that was answered is durable.
- *A watch misses nothing.*  It tells the changes of a prefix from a revision on, in order, each
  once, over disconnects too.  Where the store has forgotten them (etcd: compaction), or has gone
  back behind that revision (a backup was restored), it tells all that is there instead: `Relisted`.
- *Bounded.*  Keys and values have limits, and a watch that nobody reads holds at most one page.

A call that is cancelled is as uncertain as one that fails with `Unavailable`: the write may stand.
Leases are left out: correctness rests on compare-and-swap and epochs alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from shardlog.metadata.failures import BadKey, TooLarge

KEY_BYTES_MAX = 512
VALUE_BYTES_MAX = 64 << 10
"""A record of seven replicas takes 2 KiB; etcd refuses requests above 1.5 MiB."""
CHANGES_KEPT = 4096
"""How many changes memory and sqlite remember for watchers that lag."""
ABSENT = 0
"""The version of a key that is not there."""

_PRINTABLE = re.compile(r"[!-~]*")
AFTER_PRINTABLE = "\x7f"
"""`prefix <= key < prefix + AFTER_PRINTABLE` holds for just the keys that begin with `prefix`."""


@dataclass(frozen=True, slots=True)
class Versioned:
    key: str
    version: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """All records of a prefix, by key, as they stood together at `revision`."""

    revision: int
    records: tuple[Versioned, ...]

    @property
    def next_revision(self) -> int:
        """Where a watch goes on that is to tell just what this listing does not know."""
        return self.revision + 1


@dataclass(frozen=True, slots=True)
class Swapped:
    """`current` is the record as it stands after the call, None if there is none."""

    done: bool
    current: Versioned | None


@dataclass(frozen=True, slots=True)
class Change:
    """One write; its version is `revision`.  `value` is None if the key was deleted."""

    revision: int
    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Relisted:
    """Changes were forgotten: this replaces all that was known, and other keys are gone."""

    revision: int
    records: tuple[Versioned, ...]


News = Change | Relisted


class Watch(Protocol):
    """An endless `AsyncIterator` for one reader.

    Only `Closed` and `Unusable` end it.  A cancelled read has taken nothing: the next one goes on
    where it was.
    """

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> News: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def aclose(self) -> None:
        """Free what it holds; it ends here."""
        ...


class MetadataStore(Protocol):
    """One handle.  Any number of handles, also in other processes, may share a store."""

    async def get(self, key: str) -> Versioned | None: ...

    async def list(self, prefix: str) -> Listing: ...

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        """Write `value` if the key's version is `version`.

        Version 0 says that the key must not exist; the value None deletes it.
        """
        ...

    def watch(self, prefix: str, from_revision: int) -> Watch:
        """Changes with revisions of at least `from_revision`: `Listing.next_revision`, as a rule.

        Nothing happens before the first read.
        """
        ...

    async def close(self) -> None:
        """Free the handle; whoever still waits on it gets `Closed`.  Closing twice is fine."""
        ...


# --- the edge: what is refused before any store sees it ----------------------------------------


def require_key(key: str) -> None:
    if not key:
        raise BadKey(key, "is empty")
    require_prefix(key)


def require_prefix(prefix: str) -> None:
    """Printable ASCII alone sorts the same as text, as bytes and in every store."""
    if not _PRINTABLE.fullmatch(prefix):
        raise BadKey(prefix, "has characters other than printable ASCII without space")
    if len(prefix) > KEY_BYTES_MAX:
        raise BadKey(prefix, f"is longer than {KEY_BYTES_MAX} bytes")


def require_write(key: str, version: int, value: bytes | None) -> None:
    require_key(key)
    if version < ABSENT:
        raise ValueError(f"{key}: version {version} is negative")
    if value is None and version == ABSENT:
        raise ValueError(f"{key}: a key that does not exist cannot be deleted")
    if value is not None and len(value) > VALUE_BYTES_MAX:
        raise TooLarge(key, len(value), VALUE_BYTES_MAX)


def require_revision(revision: int) -> None:
    if revision < 0:
        raise ValueError(f"revision {revision} is negative")
