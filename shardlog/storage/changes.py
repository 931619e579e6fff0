"""The rare operations on a replica's files: each is durable when it returns, and safe to cut short.

What takes several writes is announced in the superblock first, and finished at the next start if a
crash came between: a truncation by `cut_to`, a new log by its `lineage`, a trim by `first`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardlog.protocol.effects import (
    Erase,
    Format,
    ResetLog,
    RewriteEntry,
    Superblock,
    TrimLog,
    TruncateLog,
    WriteSuperblock,
)
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry, Header, Kind
from shardlog.protocol.failures import ImpossibleState
from shardlog.storage import movement, relaxing
from shardlog.storage.failures import Damaged
from shardlog.storage.layout import (
    ENTRY_HEADER_BYTES,
    LOST_BYTE,
    Context,
    Slot,
    pack_header,
    pack_slot,
    slot_sequence,
)
from shardlog.storage.replica_files import ReplicaFiles
from shardlog.storage.root import Root
from shardlog.storage.segment import GROUP_BYTES_MAX, Segment, overwrite, remove, wipe
from shardlog.storage.superblock import NAME


@dataclass(frozen=True, slots=True)
class Mend:
    """Write again what was lost of the copies of the superblock and of the segments' heads."""


Tended = Mend | relaxing.Relax | relaxing.Flush
"""What a node asks for by itself; no replica knows of it."""
Change = Format | Erase | WriteSuperblock | RewriteEntry | TruncateLog | TrimLog | ResetLog | Tended


def perform(files: ReplicaFiles, change: Change, promise: Superblock | None = None) -> None:
    """`promise` is the superblock that explains a log that is started over.

    Whatever is promised or changed, entries that count already are synced first.
    """
    if files.unsynced:
        relaxing.flush(files)
    if isinstance(change, Format):
        _format(files, change.superblock)
    elif isinstance(change, Erase):
        _erase(files)
    elif isinstance(change, WriteSuperblock):
        _promise(files, change.superblock)
    elif isinstance(change, RewriteEntry):
        _rewrite(files, change.entry)
    elif isinstance(change, TruncateLog):
        truncate(files, change.end)
    elif isinstance(change, TrimLog):
        _trim(files, change.first, change.boundary)
    elif isinstance(change, Mend):
        _mend(files)
    elif isinstance(change, relaxing.Relax):
        relaxing.set_relaxed(files, change.relaxed)
    elif isinstance(change, relaxing.Flush):
        return
    else:
        _reset(files, change.first, change.boundary, promise)


def _root(files: ReplicaFiles) -> Root:
    if files.root is None:
        raise ImpossibleState("there is no replica to change")
    return files.root


# --- the replica as a whole --------------------------------------------------------------------


def _format(files: ReplicaFiles, superblock: Superblock) -> None:
    """Left-overs of an earlier replica go first; the superblock's name makes it one (M3)."""
    _erase(files)
    disk = files.handles.files
    disk.make_directory(files.directory)
    disk.sync_directory(files.directory.rpartition("/")[0])
    root = Root(
        files.shard, files.node, 1, 0, GENESIS_CHECKSUM, None, 0, superblock, movement.FORMATTED
    )
    files.superblocks.create(root)
    files.root = root


def _erase(files: ReplicaFiles) -> None:
    """The superblock first: without it nothing here is a replica."""
    disk = files.handles.files
    names = disk.list(files.directory)
    if NAME in names:
        disk.remove(f"{files.directory}/{NAME}")
        disk.sync_directory(files.directory)
    for name in names:
        if name != NAME:
            remove(files.handles, f"{files.directory}/{name}")
    if names:
        disk.sync_directory(files.directory)
    files.clear()


def _promise(files: ReplicaFiles, superblock: Superblock) -> None:
    root = _root(files)
    records = _moved(root, superblock, files.segments.end)
    files.write_root(replace(root, superblock=superblock, records=records))


def _moved(root: Root, new: Superblock, end: int) -> movement.Records:
    """The control records that say what this superblock changes."""
    old = root.superblock
    records = root.records
    if new.commit > old.commit:
        records = movement.checkpointed(records, old.epoch, new.commit)
    if (new.history, new.led) != (old.history, old.led):
        return movement.activated(records, new.epoch, end)
    if new.epoch > old.epoch:
        return movement.fenced(records, new.epoch, end)
    return movement.cut(records, movement.last_checkpoint(records).number)


# --- the log -----------------------------------------------------------------------------------


def begin_segment(files: ReplicaFiles, base: int, length: int, passing: bool) -> None:
    """Make the segment that the entry at `base` goes to; what was lost there is settled.

    The one before it is full now, and in memory unless its entries were only `passing`.
    """
    if files.segments.doubt:
        truncate(files, base)
    items = files.segments.items
    if items and items[-1].fits(length, items[-1].count, items[-1].position):
        files.count_segments()
        return
    files.add_segment(base, length)
    if items and not passing:
        files.handles.recent.filled(items[-1].bodies)


def truncate(files: ReplicaFiles, end: int) -> None:
    """Drop everything from `end` on (N6).

    What is dropped may have carried the newest commit context, so the superblock takes it over.
    """
    segments, root = files.segments, _root(files)
    context = files.context
    if end < context.end:
        raise ImpossibleState(f"a cut at {end}, below the commit offset {context.end}")
    if end == segments.end and not segments.doubt and root.cut_to is None:
        return
    block = replace(root.superblock, commit=max(root.superblock.commit, context.end))
    files.write_root(replace(root, cut_to=end, superblock=block))
    segments.truncate(end, root, files.plan)
    files.write_root(replace(_root(files), cut_to=None, segments=segments.made))


def _trim(files: ReplicaFiles, first: int, boundary: int) -> None:
    """The new first offset is durable before anything is removed."""
    root = _root(files)
    if movement.is_fenced(root.records):
        raise ImpossibleState("a trim while fenced")
    if first > root.first:
        files.write_root(replace(root, first=first, boundary=boundary))
        files.segments.trim(first)


def _reset(files: ReplicaFiles, first: int, boundary: int, promise: Superblock | None) -> None:
    """A new lineage: the old segments are left-overs as soon as the superblock says so.

    The history and the snapshot that the new log belongs to are durable in the same write: an empty
    log under an old history would answer for what it does not know.
    """
    root = _root(files)
    epoch = root.superblock.epoch
    records = movement.ended(root.records, epoch, first)
    if promise is not None:
        records = _moved(replace(root, records=records), promise, first)
    old = files.segments.items
    files.write_root(
        replace(
            root, lineage=root.lineage + 1, first=first, boundary=boundary, cut_to=None,
            segments=0, records=records, superblock=promise or root.superblock,
        )
    )  # fmt: skip
    files.segments.start_over(first)
    files.context = Context(first, boundary)
    for segment in old:
        remove(files.handles, segment.path)


# --- repair ------------------------------------------------------------------------------------


def _mend(files: ReplicaFiles) -> None:
    """What this process knows for certain, whatever has become of the files meanwhile."""
    if files.root is None:
        return
    if not files.superblocks.is_whole():
        files.superblocks.renew(files.root)
        files.copies_mended += 1
    for segment in files.segments.items:
        files.copies_mended += segment.mend_head()


def _rewrite(files: ReplicaFiles, entry: Entry) -> None:
    """Write an entry anew where it belongs; the newest commit context rides along."""
    header, length = entry.header, len(entry.body)
    segments = files.segments
    segment, index, position = _place_of(files, header, length)
    slot = Slot(header, length, position, files.context)
    packed = pack_slot(slot, segment.head.lineage, slot_sequence(segment.head.number, index))
    with files.handles.use(segment.path) as file:
        overwrite(file, position, pack_header(header, length) + entry.body)
        if header.base >= segments.end and segments.doubt <= 1:
            # The log ends here again: what stands behind it must not come back (rule 14).
            wipe(file, slot.after, min(slot.after + GROUP_BYTES_MAX, segment.head.size))
        file.sync()
        overwrite(file, segment.slot_position(index), packed, LOST_BYTE)
        file.sync()
    if index + 1 >= segment.count:
        segment.count, segment.position = index + 1, slot.after
    if header.base >= segments.end:
        segments.end = header.end
        segments.doubt = max(segments.doubt - 1, 0)


def _place_of(files: ReplicaFiles, header: Header, length: int) -> tuple[Segment, int, int]:
    """Where it stood, or right behind the one before it; at the log's end perhaps in a new segment.

    Nobody knows where it stood if what was before it is lost as well.  In front of a readable entry
    that it reaches up to it can only have stood right before that one.
    """
    segments = files.segments
    if not segments.items:
        files.add_segment(header.base, length)
    place = segments.covering(header.base)
    if place is not None and _is_same(place.slot.header, header):
        return place.segment, place.number, place.slot.position
    found = segments.behind(header.base)
    if found is not None and segments.has_room(*found, length):
        return found
    segment = segments.holding(header.base)
    assert segment is not None
    following = segments.following(segment, header.base)
    if following is None and segment is segments.items[-1]:
        return _moved_doubt(files, header.base, length)
    if following is not None and following.slot.header.base == header.end:
        position = following.slot.position - ENTRY_HEADER_BYTES - length
        if position >= segment.head.body_start and following.number > 0:
            return segment, following.number - 1, position
    raise Damaged(segment.path, 0, f"nobody knows where {header.id} has to stand")


def _is_same(there: Header, header: Header) -> bool:
    """The very entry, or one that stands for the other: what was lost, and its marker."""
    if there.base != header.base or there.checksum != header.checksum:
        return False
    return there == header or header.kind is Kind.LOST


def _moved_doubt(files: ReplicaFiles, base: int, length: int) -> tuple[Segment, int, int]:
    """The log goes on in a new segment; the slots that were lost are lost there as well."""
    segment = files.add_segment(base, length, files.segments.doubt)
    return segment, 0, segment.head.body_start
