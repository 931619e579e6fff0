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
from shardlog.protocol.history import epoch_at
from shardlog.protocol.messages import CannotServe, Envelope, Fetch, Fetched
from shardlog.protocol.replica_state import Due, ReplicaState
from shardlog.protocol.states import Role


def fetch(r: ReplicaState, envelope: Envelope, message: Fetch) -> None:
    """Send what is intact here and belongs to the asker's history; else say nothing."""
    found: list[Header] = []
    room_bytes = r.limits.fetch_bytes_max
    for header in r.log.between(message.start, message.end, r.limits.fetch_entries_max):
        belongs = epoch_at(message.history, header.base) == header.epoch
        room_bytes -= header.body_bytes
        if not belongs or header.base in r.log.marks or (found and room_bytes < 0):
            break
        found.append(header)
    if found and found[0].base == message.start:
        to = Member(envelope.src, envelope.src_incarnation)
        r.emit(SendFetched(to, message.epoch, tuple(found)))


def fetched(r: ReplicaState, envelope: Envelope, message: Fetched) -> None:
    """Only what we asked for in this epoch, and only what fits."""
    if message.epoch != r.epoch or Member(envelope.src, envelope.src_incarnation) not in _asked(r):
        return
    if r.backlogged():
        return
    limit = _append_limit(r)
    batch = tuple(
        entry
        for entry in message.entries
        if (entry.header.base in r.log.marks or entry.header.end <= limit)
        and epoch_at(r.history, entry.header.base) == entry.header.epoch
    )
    fresh, _ = following.take(r, batch)
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
        r.fetched_ms = -1
        tick(r)


def _asked(r: ReplicaState) -> tuple[Member, ...]:
    """Whom we may have asked: nobody else is listened to (V8)."""
    if r.lead is not None:
        return r.lead.sources if not r.lead.serving else tuple(r.lead.cursors)
    if r.role is Role.FENCED:
        return (r.syncing.source,) if r.syncing else ()
    return (r.leader,) if r.leader else ()


def _append_limit(r: ReplicaState) -> int:
    """Up to where a fetch may append, beyond repairing what is there."""
    if r.lead is not None:
        return r.log.end if r.lead.serving else r.lead.kept.end
    return r.syncing.end if r.syncing and r.role is Role.FENCED else r.log.end


def tick(r: ReplicaState) -> None:
    """Ask for what is bad or missing, again after a while."""
    due = r.fetched_ms < 0 or r.now_ms - r.fetched_ms >= r.limits.repair_retry_ms
    if not due or r.role is Role.NOT_MEMBER:
        return
    if r.lead is not None:
        _lead_whole(r)
    elif r.role is Role.FENCED and r.syncing is not None:
        bad = next(r.log.bad(r.syncing.first), None)
        start = r.log.end if bad is None else bad.base
        if start < r.syncing.end:
            _ask(r, r.syncing.source, start, r.syncing.end)
    elif r.role in following.FOLLOWING and r.log.marks and r.leader:
        bad = next(r.log.bad())
        _ask(r, r.leader, bad.base, max(bad.end, bad.base + 1))


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
