"""One shard's snapshots at a destination: which there are, and the segments they share.

    SHARD/snapshots/ID.json
    SHARD/segments/FIRST-END-DIGEST.segment
    SHARD/running/…                           who is at work now, see `marks`

A segment's name tells its range, so that one that no manifest names, because whoever made it was
interrupted, is found again by whoever comes next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from shardlog.snapshots.destination import Destination
from shardlog.snapshots.digest import PATTERN as DIGEST
from shardlog.snapshots.failures import Damaged, NoSuchSnapshot, ObjectMissing
from shardlog.snapshots.manifest import Manifest, SegmentInfo, read_manifest
from shardlog.snapshots.segment_bytes import FOOT, HEAD, Index, tail_bytes, unpack_index

_SEGMENT = re.compile(rf"(\d{{20}})-(\d{{20}})-({DIGEST})\.segment")
_ID = re.compile(r"[0-9A-Za-z.-]{1,80}")
_BEGUN = re.compile(r"(\d{8}T\d{6})\.(\d{3})Z-[0-9a-f]{8}")
FOOT_GUESS_BYTES = 64 << 10
"""So much of a segment's end is read at once: most indexes fit."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment in the listing."""

    name: str
    base: int
    end: int
    digest: str
    size: int


def shard_directory(shard: str) -> str:
    """A directory's name; a dot alone would mean another one."""
    name = quote(shard, safe="")
    return name if name.strip(".") else name.replace(".", "%2E")


def segment_name(base: int, end: int, digest: str) -> str:
    return f"{base:020d}-{end:020d}-{digest}.segment"


def new_id(now: datetime, random: str) -> str:
    """A name that tells when it was begun, to the millisecond."""
    return f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z-{random}"


def _is_older(id_: str, other: Manifest) -> bool:
    """As far as its name tells; a name that somebody chose tells nothing."""
    matched = _BEGUN.fullmatch(id_)
    if matched is None:
        return False
    begun = datetime.strptime(matched[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    return int(begun.timestamp()) * 1000 + int(matched[2]) < other.created_ms


def is_id(name: str) -> bool:
    """Whether a snapshot may be called so."""
    return _ID.fullmatch(name) is not None


class Archive:
    """`shard`'s part of a destination."""

    def __init__(self, destination: Destination, shard: str) -> None:
        self.destination = destination
        self.shard = shard
        self.directory = shard_directory(shard)

    @property
    def url(self) -> str:
        return f"{self.destination.url}/{self.directory}"

    # --- manifests -------------------------------------------------------------------------------

    def manifest_name(self, snapshot: str) -> str:
        return f"{self.directory}/snapshots/{snapshot}.json"

    def manifest_url(self, snapshot: str) -> str:
        return f"{self.destination.url}/{self.manifest_name(snapshot)}"

    def ids(self) -> list[str]:
        """Of all snapshots, the oldest first."""
        prefix = f"{self.directory}/snapshots/"
        names = [each.name.removeprefix(prefix) for each in self.destination.list(prefix)]
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def manifest(self, snapshot: str) -> Manifest:
        if not is_id(snapshot):
            raise NoSuchSnapshot(f"{snapshot!r} is no name of a snapshot")
        name = self.manifest_name(snapshot)
        try:
            data = self.destination.get(name)
        except ObjectMissing as failure:
            raise NoSuchSnapshot(f"there is no snapshot {snapshot} in {self.url}") from failure
        manifest = read_manifest(f"{self.destination.url}/{name}", data)
        if manifest.id != snapshot or manifest.shard != self.shard:
            raise Damaged(
                f"{self.destination.url}/{name}",
                f"it is of the snapshot {manifest.id} of {manifest.shard}",
            )
        return manifest

    def manifests(self) -> list[Manifest]:
        """All, the oldest first; `Damaged` if one of them is."""
        found, damaged = self.readable()
        for failure in damaged.values():
            raise failure
        return found

    def readable(self) -> tuple[list[Manifest], dict[str, Damaged]]:
        """Those that are whole, the oldest first; and by their IDs those that are not."""
        return self._read(self.ids())

    def _read(self, ids: list[str]) -> tuple[list[Manifest], dict[str, Damaged]]:
        found: list[Manifest] = []
        damaged: dict[str, Damaged] = {}
        for each in ids:
            try:
                found.append(self.manifest(each))
            except NoSuchSnapshot:
                continue  # deleted since it was listed
            except Damaged as failure:
                damaged[each] = failure
        return found, damaged

    def newest(self) -> Manifest:
        """The last one of what led, or if there is none of any node.

        Names tell which were begun last, so that older manifests are not read; names that somebody
        chose tell nothing.  `Damaged` if a manifest cannot be read that may be of a newer one:
        whoever did not say which one is meant must not get an older one unawares.
        """
        ids = self.ids()
        dated = {each for each in ids if _BEGUN.fullmatch(each)}
        found, damaged = self._read([each for each in ids if each not in dated])
        for id_ in sorted(dated, reverse=True):
            more, failures = self._read([id_])
            found += more
            damaged |= failures
            if any(each.node is None for each in more):
                break
        if not found and not damaged:
            raise NoSuchSnapshot(f"there is no snapshot of {self.shard} in {self.destination.url}")
        chosen = max(
            found, key=lambda each: (each.node is None, each.created_ms, each.id), default=None
        )
        for id_, failure in damaged.items():
            if chosen is None or not _is_older(id_, chosen):
                raise Damaged(
                    failure.name,
                    f"{failure.reason}; `--snapshot ID` chooses another, "
                    f"`shardlog snapshot delete {self.shard} URL {id_}` takes it away",
                ) from failure
        assert chosen is not None, "one that is damaged was told"
        return chosen

    def delete_manifest(self, snapshot: str) -> None:
        self.destination.delete(self.manifest_name(snapshot))

    # --- segments --------------------------------------------------------------------------------

    def segment_path(self, name: str) -> str:
        return f"{self.directory}/segments/{name}"

    def segment_url(self, name: str) -> str:
        return f"{self.destination.url}/{self.segment_path(name)}"

    def pieces(self) -> list[Piece]:
        prefix = f"{self.directory}/segments/"
        found = []
        for each in self.destination.list(prefix):
            name = each.name.removeprefix(prefix)
            if matched := _SEGMENT.fullmatch(name):
                found.append(Piece(name, int(matched[1]), int(matched[2]), matched[3], each.size))
        return found

    def require_segments(self, segments: Iterable[SegmentInfo]) -> None:
        """`Damaged` if one of them is missing or has another size, by the listing."""
        there = {piece.name: piece.size for piece in self.pieces()}
        for each in segments:
            size = there.get(each.name)
            if size is None:
                raise Damaged(self.segment_url(each.name), "it is missing")
            if size != each.size:
                url = self.segment_url(each.name)
                raise Damaged(url, f"it has {size} bytes, not {each.size}")

    def index(self, name: str, size: int) -> Index:
        """What stands behind a segment's entries."""
        path, url = self.segment_path(name), self.segment_url(name)
        try:
            head = self.destination.get_range(path, 0, HEAD.size)
            guess = max(0, size - FOOT_GUESS_BYTES)
            tail = self.destination.get_range(path, guess, size)
            if len(head) + len(tail) < HEAD.size + FOOT.size or guess + len(tail) != size:
                raise Damaged(url, f"it has not its {size} bytes")
            length = tail_bytes(url, tail)
            if length > size - HEAD.size:
                raise Damaged(url, "its index does not fit")
            if length > len(tail):
                tail = self.destination.get_range(path, size - length, size)
        except ObjectMissing as failure:
            raise Damaged(url, "it is missing") from failure
        return unpack_index(url, head, tail[len(tail) - length :], size)

    def described(self, piece: Piece, known: Iterable[SegmentInfo]) -> SegmentInfo:
        """As a manifest has it, or as the file itself says."""
        for info in known:
            if info.name == piece.name and info.size == piece.size:
                return info
        index = self.index(piece.name, piece.size)
        if (index.base, index.end) != (piece.base, piece.end):
            raise Damaged(self.segment_url(piece.name), "it holds another range than it says")
        return SegmentInfo.of(piece.name, piece.size, piece.digest, index)


def shards_at(destination: Destination) -> list[str]:
    """The shards that have snapshots there."""
    found = {
        name.partition("/")[0]
        for name in (each.name for each in destination.list(""))
        if "/snapshots/" in name
    }
    return sorted(unquote(name) for name in found)
