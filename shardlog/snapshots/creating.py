"""Taking a snapshot: a cut at a commit offset, while everybody goes on appending.

The log below a commit offset never changes, so nothing has to stop: the end is chosen first, by a
quorum's word, and everything below it is read whenever it is convenient, from whoever leads then.
What the destination holds already is not read at all, after one look whether it belongs to this
log.  Segments are put while the next one is being read.  The manifest comes last: before it there
is no snapshot, only segments that the next attempt finds.

Of one node's own copy everything is read, because the point is what this node has; equal segments
are still one object.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shardlog.client.failures import OffsetTrimmed
from shardlog.snapshots import marks
from shardlog.snapshots.archive import Archive, segment_name
from shardlog.snapshots.failures import DestinationBusy, NotPossible, ObjectExists
from shardlog.snapshots.gathering import SEGMENT_BYTES, Gathering, Made
from shardlog.snapshots.manifest import SESSIONS_MAX, Manifest, SegmentInfo, history_of
from shardlog.snapshots.reuse import Known
from shardlog.snapshots.segment_bytes import Writer

if TYPE_CHECKING:
    from shardlog.client.client import Client
    from shardlog.client.raw import RawReader

TRIMMED_TIMES_MAX = 5
"""So often a snapshot begins anew because the log was trimmed under it."""


@dataclass(slots=True)
class Progress:
    """How far it is, in offsets and bytes; told after every step."""

    first: int = 0
    end: int = 0
    at: int = 0
    reused_segments: int = 0
    reused_bytes: int = 0
    read_bytes: int = 0
    written_segments: int = 0
    written_bytes: int = 0
    on_change: Callable[[Progress], None] = field(default=lambda progress: None)

    def changed(self) -> None:
        self.on_change(self)


async def create(
    client: Client,
    archive: Archive,
    *,
    node: str | None = None,
    end: int | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    deadline_ms: int | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """A snapshot of all that is committed, or of what is below `end`."""
    made = Progress() if progress is None else progress
    reader = client.raw(archive.shard, node=node, deadline_ms=deadline_ms)
    commit = await reader.end()  # before anything is written: there may be no such shard
    id_ = _new_id()
    with marks.creating(archive, id_) as mark:
        for attempt in range(TRIMMED_TIMES_MAX):
            creation = _Creation(archive, reader, node, segment_bytes, made)
            try:
                segments = await creation.segments(commit, end)
                break
            except OffsetTrimmed:
                if attempt + 1 == TRIMMED_TIMES_MAX:
                    raise
        manifest = Manifest(
            id_, archive.shard, node, int(time.time() * 1000),
            segments[0].base if segments else commit, segments[-1].end if segments else commit,
            commit, history_of(segments), creation.sessions(), segments,
        )  # fmt: skip
        await asyncio.to_thread(_publish, archive, manifest, mark)
    return manifest


def _publish(archive: Archive, manifest: Manifest, mark: marks.Mark) -> None:
    """See `marks` for why the mark is looked for afterwards."""
    name = archive.manifest_name(manifest.id)
    try:
        archive.destination.put(name, manifest.to_bytes(), new=True)
    except ObjectExists as failure:
        raise DestinationBusy(f"{failure}: somebody else chose the same name") from failure
    if not (mark.is_fresh and mark.is_there()):
        archive.delete_manifest(manifest.id)
        raise DestinationBusy(
            f"{archive.url}: this snapshot was taken for dead while it was made, and is undone"
        )


def _new_id() -> str:
    now = datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z-{secrets.token_hex(4)}"


class _Creation:
    """One attempt."""

    def __init__(
        self,
        archive: Archive,
        reader: RawReader,
        node: str | None,
        segment_bytes: int,
        progress: Progress,
    ) -> None:
        self._archive = archive
        self._reader = reader
        self._own = node is not None
        self._segment_bytes = segment_bytes
        self._progress = progress
        self._known: Known
        self._manifests: list[Manifest] = []
        self._segments: list[SegmentInfo] = []
        self._sessions: dict[int, Writer] = {}
        self._putting: asyncio.Task[None] | None = None

    async def segments(self, commit: int, wanted: int | None) -> tuple[SegmentInfo, ...]:
        first = await self._reader.first()
        end = commit if wanted is None else wanted
        if end > commit or end < first:
            raise NotPossible(
                f"offset {end} is out of range: {self._archive.shard!r} has [{first}, {commit})"
            )
        self._manifests = await asyncio.to_thread(self._archive.manifests)
        self._known = await asyncio.to_thread(
            Known, self._archive, self._manifests, self._segment_bytes
        )
        if not self._own and end > first:
            await self._reuse(first, end)
        progress = self._progress
        progress.first = self._segments[0].base if self._segments else first
        progress.end = end
        progress.at = self._segments[-1].end if self._segments else first
        progress.changed()
        try:
            await self._read(progress.at, end)
        finally:
            await self._until_put()
        return tuple(self._segments)

    def sessions(self) -> tuple[Writer, ...]:
        latest = sorted(self._sessions.values(), key=lambda each: each.used)[-SESSIONS_MAX:]
        return tuple(sorted(latest))

    # --- what is there ---------------------------------------------------------------------------

    async def _reuse(self, first: int, end: int) -> None:
        chain = await asyncio.to_thread(self._known.chain, first, end)
        while chain and not await self._belongs(chain[-1], first):
            chain.pop()
        told = self._told(chain)
        for segment in chain:
            sessions: tuple[Writer, ...] = ()
            if len(self._segments) >= told:
                index = await asyncio.to_thread(self._archive.index, segment.name, segment.size)
                sessions = index.sessions
            self._note(segment, sessions)
            self._progress.reused_segments += 1
            self._progress.reused_bytes += segment.size

    def _told(self, chain: list[SegmentInfo]) -> int:
        """Of so many segments an earlier manifest tells the sessions."""
        names = [segment.name for segment in chain]
        most = 0
        for manifest in self._manifests:
            count = len(manifest.segments)
            if count > most and [each.name for each in manifest.segments] == names[:count]:
                most = count
                self._sessions = {each.session: each for each in manifest.sessions}
        return most

    async def _belongs(self, segment: SegmentInfo, first: int) -> bool:
        """Whether the log has its last entry."""
        if segment.end <= first:
            return False
        header = (await self._reader.entry_at(segment.end - 1)).header
        return header.end == segment.end and header.checksum == segment.head

    # --- what has to be read ---------------------------------------------------------------------

    async def _read(self, start: int, end: int) -> None:
        parent = self._segments[-1].head if self._segments else None
        gathering: Gathering | None = None
        cut: int | None = None
        async for entries in self._reader.entries(start, end, parent):
            for header, raw in entries:
                if gathering is None:
                    gathering = Gathering(header.base, header.parent)
                    cut = self._known.cut(header.base, end)
                gathering.add(header, raw)
                self._progress.read_bytes += len(raw)
                if gathering.end == cut or (
                    (cut is None or gathering.end > cut) and len(gathering) >= self._segment_bytes
                ):
                    await self._finish(gathering)
                    gathering = None
            self._progress.at = entries[-1].header.end
            self._progress.changed()
        if gathering is not None:
            await self._finish(gathering)

    async def _finish(self, gathering: Gathering) -> None:
        """One segment is being put while the next is gathered."""
        made = await asyncio.to_thread(gathering.made)
        name = segment_name(made.index.base, made.index.end, made.digest)
        self._note(SegmentInfo.of(name, len(made.data), made.digest, made.index),
                   made.index.sessions)  # fmt: skip
        await self._until_put()
        there = self._known.pieces.get(name)
        if there is not None and there.size == len(made.data):
            self._progress.reused_segments += 1
            self._progress.reused_bytes += there.size
            return
        self._putting = asyncio.ensure_future(asyncio.to_thread(self._put, name, made))

    def _put(self, name: str, made: Made) -> None:
        self._archive.destination.put(self._archive.segment_path(name), made.data)
        self._progress.written_segments += 1
        self._progress.written_bytes += len(made.data)

    async def _until_put(self) -> None:
        if self._putting is not None:
            putting, self._putting = self._putting, None
            await putting

    def _note(self, segment: SegmentInfo, sessions: tuple[Writer, ...]) -> None:
        self._segments.append(segment)
        for each in sessions:
            self._sessions[each.session] = each
        if len(self._sessions) > 2 * SESSIONS_MAX:
            self._sessions = {each.session: each for each in self.sessions()}
