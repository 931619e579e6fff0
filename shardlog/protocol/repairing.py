"""Repair and fetching: from those who hold a good copy.

One pair of messages serves three needs: a new leader that must make its log whole before it opens
its epoch, a replica that found a bad slot, and a new node that installs a snapshot.  What is
wanted is named by offset and history, and what comes is taken only if it fits the hash chain.  A
replica whose own copy is bad stays silent.
"""

from __future__ import annotations

from shardlog.protocol import following, leading
from shardlog.protocol.effects import SendFetched
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.failures import OffsetGap
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.protocol.history import epoch_at
from shardlog.protocol.messages import (
    CannotServe,
    Entries,
    Envelope,
    Fetch,
    Fetched,
    Refused,
    Snapshot,
)
from shardlog.protocol.replica_state import Due, ReplicaState
from shardlog.protocol.states import Role
from shardlog.protocol.transferring import Transferring

ASKED_MAX = 8
"""So many may wait until something may be sent; others ask again."""


def fetch(r: ReplicaState, envelope: Envelope, message: Fetch) -> None:
    """Send what is intact here and belongs to the asker's history; else say nothing.

    While the driver allows none of it to be sent, whoever asks waits for the next tick.
    """
    to = Member(envelope.src, envelope.src_incarnation)
    if r.lead is not None and to not in r.lead.cursors:
        r.lead.note_fetching(to, message.start, r.now_ms)
    if r.feed_bytes is None or r.feed_bytes > 0:
        _serve(r, to, message)
    elif to in r.asked or len(r.asked) < ASKED_MAX:
        r.asked[to] = message


def _serve(r: ReplicaState, to: Member, message: Fetch) -> None:
    """In pieces that are sent one behind the other; each tells how much is behind it."""
    limits = r.limits
    allowed = limits.fetch_bytes_max * limits.fetch_pieces_max
    room_bytes = allowed if r.feed_bytes is None else min(allowed, r.feed_bytes)
    pieces: list[list[Header]] = []
    at, piece_bytes = message.start, limits.fetch_bytes_max
    most = limits.fetch_entries_max * limits.fetch_pieces_max
    if r.served_bytes:
        # Headers at rest are dear, so no more are asked for than are likely to be sent.
        most = min(most, room_bytes // r.served_bytes + limits.fetch_pieces_max)
    for header in r.log.between(at, message.end, most):
        size = header.body_bytes
        belongs = epoch_at(message.history, header.base) == header.epoch
        if header.base != at or not belongs or at in r.log.marks or (pieces and size > room_bytes):
            break
        if not pieces or size > piece_bytes or len(pieces[-1]) >= limits.fetch_entries_max:
            if len(pieces) >= limits.fetch_pieces_max:
                break
            pieces.append([])
            piece_bytes = limits.fetch_bytes_max
        pieces[-1].append(header)
        piece_bytes -= size
        room_bytes -= size
        at = header.end
    for piece in pieces:
        r.served_bytes = sum([header.body_bytes for header in piece]) // len(piece)
        if r.feed_bytes is not None:
            r.feed_bytes -= sum([ENTRY_HEADER_BYTES + header.body_bytes for header in piece])
        r.emit(SendFetched(to, message.epoch, tuple(piece), at - piece[-1].end))


def _serve_waiting(r: ReplicaState) -> None:
    while r.asked and (r.feed_bytes is None or r.feed_bytes > 0):
        to = next(iter(r.asked))
        _serve(r, to, r.asked.pop(to))


def fetched(r: ReplicaState, envelope: Envelope, message: Fetched) -> None:
    """Only what we asked for in this epoch, and only what fits."""
    if message.epoch != r.epoch or Member(envelope.src, envelope.src_incarnation) not in _asked(r):
        return
    if r.backlogged() or not message.entries:
        return
    limit = _append_limit(r)
    batch = tuple(
        entry
        for entry in message.entries
        if (entry.header.base in r.log.marks or entry.header.end <= limit)
        and epoch_at(r.history, entry.header.base) == entry.header.epoch
    )
    before = r.log.end
    fresh, _ = following.take(r, batch)
    if r.transfer is not None:
        following.note_progress(r, envelope, batch, before)
    if fresh or r.rewrites:
        if r.lead:
            r.lead.tries = 0
        if r.log.open_tail:
            r.tail_until = r.lead.kept.end if r.lead else r.tail_until
            following.close_tail(r)
        if r.role is Role.FENCED:
            r.sync(Due.INSTALLED, end=r.log.end)
        else:
            r.owes_sync = True
        _ask_on(r, message)


def _ask_on(r: ReplicaState, message: Fetched) -> None:
    """Ask for what comes next: where all that was asked for is here, or a little earlier.

    A new node asks as soon as an answer has begun and tells where it will end, so that its source
    reads the next one while this one is on its way.
    """
    if r.fetched_ms >= 0:
        r.fetched_ms = r.now_ms
    if r.syncing is not None and r.role is Role.FENCED:
        until = message.entries[-1].header.end + message.more
        begun, r.fetch_until = until > r.fetch_until, max(r.fetch_until, until)
        if r.log.end < r.syncing.end and (not begun or r.fetch_until >= r.syncing.end):
            return
    elif message.more:
        return
    r.fetched_ms = -1
    tick(r)


def _asked(r: ReplicaState) -> tuple[Member, ...]:
    """Whom we may have asked: nobody else is listened to (V8)."""
    if r.lead is not None:
        return r.lead.sources if not r.lead.serving else tuple(r.lead.cursors)
    if r.role is Role.FENCED:
        return sources_of(r.syncing, r.others) if r.syncing else ()
    return (r.leader,) if r.leader else ()


def _append_limit(r: ReplicaState) -> int:
    """Up to where a fetch may append, beyond repairing what is there."""
    if r.lead is not None:
        return r.log.end if r.lead.serving else r.lead.kept.end
    return r.syncing.end if r.syncing and r.role is Role.FENCED else r.log.end


def tick(r: ReplicaState) -> None:
    """Ask for what is bad or missing, again after a while."""
    if r.asked:
        _serve_waiting(r)
    installs = r.role is Role.FENCED and r.syncing is not None
    retry_ms = r.limits.fetch_retry_ms if installs else r.limits.repair_retry_ms
    due = r.fetched_ms < 0 or r.now_ms - r.fetched_ms >= retry_ms
    if not due or r.role is Role.NOT_MEMBER:
        return
    if r.lead is not None:
        _lead_whole(r)
    elif r.role is Role.FENCED and r.syncing is not None:
        _install_more(r, r.syncing)
    elif r.role in following.FOLLOWING and r.log.marks and r.leader:
        bad = next(r.log.bad())
        _ask(r, r.leader, bad.base, max(bad.end, bad.base + 1))


def sources_of(snapshot: Snapshot, others: tuple[Member, ...]) -> tuple[Member, ...]:
    """Whoever may be asked for it, the one that described it first."""
    return tuple(dict.fromkeys((snapshot.source, *others)))


def _install_more(r: ReplicaState, snapshot: Snapshot) -> None:
    """The next piece: from the source that the last one came from, or else from the next."""
    if r.fetched_ms >= 0:
        r.source_at += 1  # the last one was asked in vain
        r.fetch_until = 0
    start = max(r.log.end, r.fetch_until)
    bad = next(r.log.bad(snapshot.first), None)
    if bad is not None:
        start, r.fetch_until = bad.base, 0
    if start >= snapshot.end or not _has_room(r):
        return
    sources = sources_of(snapshot, r.others)
    source = sources[r.source_at % len(sources)]
    if r.transfer is None:
        r.transfer = Transferring(source, r.log.end, snapshot.end, r.now_ms)
    _ask(r, source, start, snapshot.end)


def _has_room(r: ReplicaState) -> bool:
    """Whether our disk keeps up, so that what is under way will not have to be dropped."""
    entries, size = r.log.load(r.durable_end, r.log.end)
    limits = r.limits
    return 2 * entries <= limits.unsynced_entries_max and 2 * size <= limits.unsynced_bytes_max


def distrusted(r: ReplicaState, source: Member) -> None:
    """What it sent was damaged, and is as good as not sent: ask somebody else, if there is one."""
    if r.role is Role.NOT_MEMBER:
        return
    if r.role in following.FOLLOWING and source == r.leader:
        r.send(source, Refused(Entries.__name__, r.epoch, OffsetGap(r.log.end)))
    asked = _asked(r)
    if r.fetched_ms >= 0 and source in asked and len(asked) > 1:
        r.source_at += 1
        r.fetched_ms, r.fetch_until = -1, 0
        tick(r)


def _lead_whole(r: ReplicaState) -> None:
    """A leader asks its sources in turn; if none of them can help it does not go on (T13)."""
    lead = r.lead
    if lead is None:
        return
    bad = next(r.log.bad(), None)
    start = leading.missing_from(r, lead) if bad is None or not lead.serving else bad.base
    if start is None:
        return
    sources = lead.sources if not lead.serving else tuple(sorted(lead.cursors))
    if lead.tries >= r.limits.repair_tries_max and (not lead.serving or start >= r.commit):
        r.send(lead.operator, CannotServe(r.epoch, start))
        leading.step_down(r)
        return
    lead.tries += 1
    if sources:
        end = start + 1 if start < r.log.end else lead.kept.end
        _ask(r, sources[lead.tries % len(sources)], start, end)


def _ask(r: ReplicaState, source: Member, start: int, end: int) -> None:
    r.fetched_ms = r.now_ms
    if source != r.member:
        r.send(source, Fetch(r.epoch, r.history, start, end))
