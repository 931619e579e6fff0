"""Opening a replica's directory: finish what was interrupted, read the tail, mend what can be.

Only the tail is read: from the last checkpoint on.  Mending comes before anything new is written:
slots are written again from whole entries, else a later damage to the entry would look like a
blank; and what lies behind the log's end is wiped, else it could come back (rule 14).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardlog.protocol.effects import Recovered
from shardlog.protocol.entry import GENESIS_CHECKSUM, Kind, unreadable
from shardlog.protocol.log import Mark
from shardlog.storage import relaxing
from shardlog.storage.failures import Damaged, WrongIdentity
from shardlog.storage.handles import Handles
from shardlog.storage.layout import LOST_BYTE, Context, Slot, pack_slot, slot_sequence
from shardlog.storage.plan import Plan
from shardlog.storage.root import Root
from shardlog.storage.segment import GROUP_BYTES_MAX, Segment, overwrite, wipe
from shardlog.storage.segments import Segments
from shardlog.storage.superblock import NAME, SuperblockFile
from shardlog.storage.walk import Unslotted, Walk


@dataclass(frozen=True, slots=True)
class Opened:
    """`context` is the latest commit context that can be vouched for."""

    superblocks: SuperblockFile
    root: Root
    segments: Segments
    context: Context
    recovered: Recovered


def is_formatted(handles: Handles, directory: str) -> bool:
    return NAME in handles.files.list(directory)


def opened(handles: Handles, directory: str, shard: str, node: str, plan: Plan) -> Opened:
    """See the module; raises a `StorageFailure` for what cannot be trusted."""
    superblocks = SuperblockFile(handles.files, directory)
    _settle(handles, directory, [superblocks.path])
    root = superblocks.load()
    if (root.shard, root.node) != (shard, node):
        raise WrongIdentity(
            superblocks.path,
            f"it belongs to shard {root.shard} on node {root.node}, not to {shard} on {node}",
        )
    segments = Segments(handles, directory)
    segments.open(root)
    tail = segments.holding(tail_from(root))
    if tail is not None:
        items = segments.items
        _settle(handles, directory, [each.path for each in items[items.index(tail) :]])
    if root.cut_to is not None:
        walked(segments, root)
        segments.truncate(root.cut_to, root, plan)
    if root.cut_to is not None or root.segments != segments.made:
        root = replace(root, cut_to=None, segments=segments.made)
        superblocks.write(root)
    walk = walked(segments, root)
    doubt = walk.finish()
    segments.end, segments.doubt = walk.headers[-1].end if walk.headers else walk.at, doubt
    context = _context(segments, root, walk)
    _mend(segments, walk)
    if relaxing.MARK in handles.files.list(directory):
        if relaxing.marked_run(handles, directory) not in (None, handles.files.machine_run()):
            root = _doubted(superblocks, segments, root, plan)
        relaxing.forget(handles, directory)
    recovered = Recovered(
        replace(root.superblock, commit=context.end),
        root.first,
        root.boundary,
        tuple(walk.headers),
        tuple(walk.marks),
        doubt or 1,
    )
    return Opened(superblocks, root, segments, context, recovered)


def _doubted(superblocks: SuperblockFile, segments: Segments, root: Root, plan: Plan) -> Root:
    """More may have stood here than is found: entries counted before they were synced."""
    block = replace(root.superblock, in_doubt=max(root.superblock.in_doubt, relaxing.IN_DOUBT))
    root = replace(root, superblock=block)
    superblocks.write(root)
    if not segments.doubt:
        segments.truncate(segments.end, root, plan)
        root = replace(root, segments=segments.made)
        superblocks.write(root)
    return root


def _settle(handles: Handles, directory: str, paths: list[str]) -> None:
    """What a killed process had written, but not synced, is made durable before it is believed."""
    for path in paths:
        with handles.use(path) as file:
            file.settle()
    for name in (directory, directory.rpartition("/")[0]):
        handles.files.sync_directory(name)


def tail_from(root: Root) -> int:
    """Where the last checkpoint stands: what lies below was folded into the superblock."""
    return max(min(root.superblock.sessions_at, root.superblock.commit), root.first)


def walked(segments: Segments, root: Root) -> Walk:
    """Read the tail, and at least the last entry before it."""
    block = root.superblock
    items = segments.items
    if not items:
        walk = Walk(block.history, block.commit, root.first, root.boundary)
        walk.nothing()
        return walk
    at, index, slot = _last_before(segments, max(tail_from(root) - 1, root.first))
    base = slot.header.base if slot else items[at].first
    parent = root.boundary if base == root.first else slot.header.parent if slot else None
    walk = Walk(block.history, block.commit, base, parent)
    for number, each in enumerate(items[at:], at):
        end = items[number + 1].first if number + 1 < len(items) else None
        walk.segment(each, index, end)
        index = 0
    _hide_trimmed(walk, root.first)
    _begin_at_tail(walk, root)
    return walk


def _last_before(segments: Segments, offset: int) -> tuple[int, int, Slot | None]:
    """Segment and slot of the last entry at or below `offset` that can be read."""
    at = segments.items.index(segments.holding(offset) or segments.items[0])
    segment = segments.items[at]
    segment.load_count()
    index = segment.find(offset)
    return at, max(index, 0), segment.slot(index) if index >= 0 else None


def _begin_at_tail(walk: Walk, root: Root) -> None:
    """A slot that could not be read made the walk begin earlier; mended, it will not again."""
    target = max(tail_from(root) - 1, root.first)
    bad = {base for base, _ in walk.marks}
    drop = 0
    while drop + 1 < len(walk.headers) and walk.headers[drop + 1].base <= target:
        if walk.headers[drop].base in bad:
            break
        drop += 1
    del walk.headers[:drop]


def _hide_trimmed(walk: Walk, first: int) -> None:
    """What a segment still holds below the first offset is not part of the log."""
    kept = [header for header in walk.headers if header.base >= first]
    inside = next((header for header in walk.headers if header.base < first < header.end), None)
    walk.marks = [(base, mark) for base, mark in walk.marks if base >= first]
    if inside is not None and inside.kind is Kind.UNKNOWN:
        kept.insert(0, unreadable(inside.epoch, first, inside.end - first))
        walk.marks.insert(0, (first, Mark.FAULT))
    walk.headers = kept


def _context(segments: Segments, root: Root, walk: Walk) -> Context:
    """The latest context, and whether it agrees with the log (rule 17, V2).

    Its checksum is 0 if the entry that ends there could not be read when it was written.
    """
    end = segments.end
    known = {header.end: header.checksum for header in walk.headers if header.checksum}
    ridden = walk.context
    if ridden.end > end and not segments.doubt:
        raise Damaged(*walk.context_at, f"commit context {ridden.end} beyond the log's end {end}")
    inside = any(
        header.base < ridden.end < header.end
        for header in walk.headers
        if header.checksum and header.kind is not Kind.LOST  # which may stand for several entries
    )
    differs = ridden.checksum and known.get(ridden.end, ridden.checksum) != ridden.checksum
    if inside or differs:
        raise Damaged(*walk.context_at, f"commit context {ridden.end} does not match the log")
    commit = min(max(root.superblock.commit, ridden.end, root.first), end)
    if commit == root.first:
        return Context(commit, root.boundary)
    return Context(commit, known.get(commit, GENESIS_CHECKSUM))


def _mend(segments: Segments, walk: Walk) -> None:
    for segment in segments.items:
        segment.mend_head()
    for segment in segments.items:
        mine = [each for each in walk.unslotted if each.segment is segment]
        if mine:
            _write_slots(segment, mine)
    if segments.items and not segments.doubt:
        last = segments.items[-1]
        with last.handles.use(last.path) as file:
            upto = min(last.position + GROUP_BYTES_MAX, last.head.size)
            if wipe(file, last.position, upto):
                file.sync()


def _write_slots(segment: Segment, lost: list[Unslotted]) -> None:
    head = segment.head
    with segment.handles.use(segment.path) as file:
        for each in lost:
            sequence = slot_sequence(head.number, each.index)
            packed = pack_slot(each.slot, head.lineage, sequence)
            overwrite(file, segment.slot_position(each.index), packed, LOST_BYTE)
        file.sync()
