"""The manifest: what a snapshot holds, so that nobody has to look for it.

A snapshot exists when its manifest does.  It is JSON for people and programs of any language; its
last field is a checksum of the rest, because a manifest that is damaged must not be taken for one
of another, shorter snapshot.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from shardlog.snapshots.digest import digest_in, field_of
from shardlog.snapshots.failures import Damaged
from shardlog.snapshots.segment_bytes import GIVEN_UP, OWN_TIMES, Index, Span, Writer
from shardlog.transport.compression import Compression

FORMAT = "shardlog-snapshot"
VERSION = 2
CREATED_MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""
READABLE = (1, VERSION)
"""In version 1 segments are called by their SHA-256."""
SESSIONS_MAX = 256
"""So many sessions are told, those used last: what a leader remembers by default."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment file: its place in the log, and what must be known to read it or leave it out.

    `parent` is the checksum of the entry before `base`, `head` that of its last entry.  Times are
    those of entries; with `own_times` its records may have others.  `given_up`: markers stand in it
    for records that nobody has any more.
    """

    name: str
    base: int
    end: int
    size: int
    digest: str
    parent: int
    head: int
    entries: int
    batches: int
    records: int
    earliest_ms: int
    latest_ms: int
    own_times: bool
    given_up: bool
    compressions: int
    spans: tuple[Span, ...]
    index_bytes: int

    @classmethod
    def of(cls, name: str, size: int, digest: str, index: Index) -> SegmentInfo:
        return cls(
            name, index.base, index.end, size, digest, index.parent, index.head, index.entries,
            index.batches, index.records, index.earliest_ms, index.latest_ms,
            bool(index.flags & OWN_TIMES), bool(index.flags & GIVEN_UP), index.compressions,
            index.spans, index.tail_bytes,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        algorithm, digest = field_of(self.digest)
        return {
            "name": self.name,
            "first": self.base,
            "end": self.end,
            "bytes": self.size,
            algorithm: digest,
            "parent": f"{self.parent:016x}",
            "head": f"{self.head:016x}",
            "entries": self.entries,
            "batches": self.batches,
            "records": self.records,
            "earliest_ms": self.earliest_ms,
            "latest_ms": self.latest_ms,
            "own_times": self.own_times,
            "given_up": self.given_up,
            "compression": [
                kind.name.lower() for kind in Compression if self.compressions >> kind & 1
            ],
            "epochs": [{"epoch": span.epoch, "first": span.first} for span in self.spans],
            "index_bytes": self.index_bytes,
        }

    @classmethod
    def from_json(cls, found: Any) -> SegmentInfo:
        kinds = [Compression[name.upper()] for name in found["compression"]]
        return cls(
            _text(found["name"]), _number(found["first"]), _number(found["end"]),
            _number(found["bytes"]), digest_in(found), int(found["parent"], 16),
            int(found["head"], 16), _number(found["entries"]), _number(found["batches"]),
            _number(found["records"]), _number(found["earliest_ms"]), _number(found["latest_ms"]),
            bool(found["own_times"]), bool(found.get("given_up")),
            sum(1 << kind for kind in kinds), _spans(found["epochs"]),
            _number(found["index_bytes"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Manifest:
    """`[first, end)` of a shard's log, all of it committed.

    `node` is whose copy it is; None if it was read from whoever led.  `commit` is what was known
    to be committed when the cut was made, at or above `end`.
    """

    id: str
    shard: str
    node: str | None
    created_ms: int
    first: int
    end: int
    commit: int
    history: tuple[Span, ...]
    sessions: tuple[Writer, ...]
    segments: tuple[SegmentInfo, ...]

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments)

    @property
    def entries(self) -> int:
        return sum(segment.entries for segment in self.segments)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def parent(self) -> int:
        return self.segments[0].parent if self.segments else 0

    @property
    def head(self) -> int:
        return self.segments[-1].head if self.segments else 0

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "shard": self.shard,
            "node": self.node,
            "created_ms": self.created_ms,
            "first": self.first,
            "end": self.end,
            "entries": self.entries,
            "records": self.records,
            "bytes": self.size,
            "commit": {
                "offset": self.commit,
                "end": self.end,
                "checksum": f"{self.head:016x}",
            },
            "history": [{"epoch": span.epoch, "first": span.first} for span in self.history],
            "sessions": [
                {"id": each.session, "last": each.request, "used": each.used}
                for each in self.sessions
            ],
            "segments": [segment.to_json() for segment in self.segments],
        }
        return {**made, "checksum": _checksum(made)}

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json(), indent=1).encode() + b"\n"


def read_manifest(name: str, data: bytes) -> Manifest:
    """`Damaged` unless it is a whole manifest of a version that is known here."""
    try:
        found = json.loads(data)
        if found["format"] != FORMAT:
            raise Damaged(name, "it is no manifest of a snapshot")
        if found["version"] not in READABLE:
            known = " and ".join(map(str, READABLE))
            raise Damaged(name, f"its version is {found['version']}; {known} are known here")
        checksum = found.pop("checksum")
        if checksum != _checksum(found):
            raise Damaged(name, "its checksum is another")
        manifest = Manifest(
            _text(found["id"]), _text(found["shard"]),
            None if found["node"] is None else _text(found["node"]),
            _number(found["created_ms"]), _number(found["first"]), _number(found["end"]),
            _number(found["commit"]["offset"]), _spans(found["history"]),
            tuple(
                Writer(_number(each["id"]), _number(each["last"]), _number(each["used"]))
                for each in found["sessions"]
            ),
            tuple(SegmentInfo.from_json(each) for each in found["segments"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as failure:
        raise Damaged(name, f"it cannot be read: {failure or type(failure).__name__}") from failure
    _check(name, manifest)
    return manifest


def _check(name: str, manifest: Manifest) -> None:
    """It was made at some time, and the segments follow each other and cover the range."""
    if manifest.created_ms > CREATED_MS_MAX:
        raise Damaged(name, f"it was created at {manifest.created_ms} ms, which is no date")
    at, parent = manifest.first, manifest.parent
    for segment in manifest.segments:
        if segment.base != at or segment.end <= at or segment.parent != parent:
            raise Damaged(name, "its segments do not follow each other", segment.base)
        at, parent = segment.end, segment.head
    if at != manifest.end:
        raise Damaged(name, f"its segments end at {at}, not at {manifest.end}")


def history_of(segments: tuple[SegmentInfo, ...]) -> tuple[Span, ...]:
    """The epochs of all, each once."""
    found: list[Span] = []
    for segment in segments:
        for span in segment.spans:
            if not found or found[-1].epoch != span.epoch:
                found.append(span)
    return tuple(found)


def _checksum(found: dict[str, Any]) -> str:
    """Of the JSON without blanks and with its keys in order."""
    plain = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
    return sha256(plain).hexdigest()


def _spans(found: Any) -> tuple[Span, ...]:
    return tuple(Span(_number(each["epoch"]), _number(each["first"])) for each in found)


def _number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"{found!r:.40} stands where a number is due")
    return found


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError(f"{found!r:.40} stands where a text is due")
    return found
