"""Taking a snapshot: a cut at a commit offset, while everybody goes on appending.

The log below a commit offset never changes, so nothing has to stop: the end is chosen first, by a
quorum's word, and everything below it is read whenever it is convenient, from whoever leads then.
What the destination holds already is not read at all, after one look whether it belongs to this
log.  Segments are hashed and written while they are read (`putting`).  The manifest comes last:
before it there is no snapshot, only segments that the next attempt finds.

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
from shardlog.snapshots.archive import Archive, new_id
from shardlog.snapshots.failures import (
    DestinationBusy,
    NoSuchSnapshot,
    NotPossible,
    ObjectExists,
)
from shardlog.snapshots.gathering import SEGMENT_BYTES, Gathering
from shardlog.snapshots.manifest import SESSIONS_MAX, Manifest, SegmentInfo, history_of
from shardlog.snapshots.putting import Passage, Putting
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
    damaged: tuple[str, ...] = ()
    """Manifests of earlier snapshots that cannot be read, which takes nothing from this one."""
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
    id_: str | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """A snapshot of all that is committed, or of what is below `end`.

    Whoever chooses `id_` may ask again after a crash: a snapshot of that name is not made twice.
    """
    made = Progress() if progress is None else progress
    if id_ is not None and (there := await asyncio.to_thread(_made_before, archive, id_, node)):
        made.reused_segments, made.reused_bytes = len(there.segments), there.size
        made.first, made.end, made.at = there.first, there.end, there.end
        made.changed()
        return there
    reader = client.raw(archive.shard, node=node, deadline_ms=deadline_ms)
    commit = await reader.end()  # before anything is written: there may be no such shard
    id_ = id_ or new_id(datetime.now(UTC), secrets.token_hex(4))
    with marks.creating(archive, f"{id_}-{secrets.token_hex(4)}") as mark:
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


def _made_before(archive: Archive, id_: str, node: str | None) -> Manifest | None:
    try:
        found = archive.manifest(id_)
    except NoSuchSnapshot:
        return None
    if found.node != node:
        raise NotPossible(
            f"{archive.url}: snapshot {id_} is there, and is of {found.node or 'what led'}"
        )
    return found


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

    async def segments(self, commit: int, wanted: int | None) -> tuple[SegmentInfo, ...]:
        first = await self._reader.first()
        end = commit if wanted is None else wanted
        if end > commit or end < first:
            raise NotPossible(
                f"offset {end} is out of range: {self._archive.shard!r} has [{first}, {commit})"
            )
        self._manifests, damaged = await asyncio.to_thread(self._archive.readable)
        self._progress.damaged = tuple(map(str, damaged.values()))
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
        putting = Putting(self._archive, self._known.pieces)
        try:
            await self._read(progress.at, end, putting)
        finally:
            try:
                while not putting.is_idle:
                    await self._until_put(putting)
            finally:
                await putting.close()
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

    async def _read(self, start: int, end: int, putting: Putting) -> None:
        parent = self._segments[-1].head if self._segments else None
        passage: Passage | None = None
        cut: int | None = None
        try:
            async for entries in self._reader.entries(start, end, parent):
                for header, raw in entries:
                    if passage is None:
                        cut = self._known.cut(header.base, end)
                        passage = await putting.begin(
                            header.base, header.parent, maybe_there=cut is not None
                        )
                    passage.add(header, raw)
                    self._progress.read_bytes += len(raw)
                    if self._is_long_enough(passage.gathering, cut):
                        await self._finish(passage, putting)
                        passage = None
                await putting.until_room()
                self._progress.at = entries[-1].header.end
                self._progress.changed()
            if passage is not None:
                await self._finish(passage, putting)
                passage = None
        finally:
            if passage is not None:
                await passage.leave()

    def _is_long_enough(self, gathering: Gathering, cut: int | None) -> bool:
        """One that begins where another does ends there too."""
        return gathering.end == cut or (
            (cut is None or gathering.end > cut) and len(gathering) >= self._segment_bytes
        )

    async def _finish(self, passage: Passage, putting: Putting) -> None:
        """It goes on its way; they are noted in the order of the log."""
        while putting.is_full:
            await self._until_put(putting)
        putting.finish(passage)

    async def _until_put(self, putting: Putting) -> None:
        info, sessions, written = await putting.until_put()
        self._note(info, sessions)
        if written:
            self._progress.written_segments += 1
            self._progress.written_bytes += info.size
        else:
            self._progress.reused_segments += 1
            self._progress.reused_bytes += info.size

    def _note(self, segment: SegmentInfo, sessions: tuple[Writer, ...]) -> None:
        self._segments.append(segment)
        for each in sessions:
            self._sessions[each.session] = each
        if len(self._sessions) > 2 * SESSIONS_MAX:
            self._sessions = {each.session: each for each in self.sessions()}
