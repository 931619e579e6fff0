"""What a leader owes to the clients that wait."""

from __future__ import annotations

from shardlog.protocol.effects import ServeRead
from shardlog.protocol.entry import Header, Kind
from shardlog.protocol.failures import CorruptEntry, EntryLost, NotLeader, OffsetTrimmed
from shardlog.protocol.leadership import Leadership, PendingRead
from shardlog.protocol.messages import Appended, ClientRefused, Registered
from shardlog.protocol.replica_state import ReplicaState


def answer_committed(r: ReplicaState, lead: Leadership, before: int) -> None:
    """Reply to everyone whose entry is in `[before, commit)`: never earlier (rule 18)."""
    if not lead.waiters:
        return
    waiters = lead.waiters
    for header in r.log.between(before, r.commit):
        for waiter in waiters.pop(header.base + header.count, ()):
            client, session, number, result = waiter
            if session:
                r.send(client, Appended(session, number, result))
            else:
                r.send(client, Registered(number, result))


def answer_reads(r: ReplicaState, lead: Leadership) -> None:
    """A read is served when a quorum has shown that nobody else could have led meanwhile."""
    if not lead.reads or r.commit <= lead.tenure_first:
        return
    ready: list[PendingRead] = []
    left: list[PendingRead] = []
    for each in lead.reads:
        (ready if confirmed(r, lead, each) else left).append(each)
    if not ready:
        return
    lead.reads = left
    for read in ready:
        if read.start < r.log.first:
            refusal = OffsetTrimmed(r.log.first)
            r.send(read.client, ClientRefused(0, read.nonce, refusal))
            continue
        visible = _visible(r, read.start, read.entries_max)
        if isinstance(visible, Header):
            r.send(read.client, ClientRefused(0, read.nonce, _missing(visible)))
        else:
            r.emit(ServeRead(read.client, read.nonce, tuple(visible), r.commit))


def _missing(header: Header) -> CorruptEntry | EntryLost:
    """Bad for now, or given up for good."""
    if header.kind is Kind.LOST:
        return EntryLost(header.base, header.end)
    return CorruptEntry(header.id)


def _visible(r: ReplicaState, start: int, most: int) -> list[Header] | Header:
    """The next committed entries that carry records; or the stretch among them that is lost.

    A reader comes to a loss before it is told of one.
    """
    within = r.log.covering(start)
    if within is not None and within.kind is Kind.LOST and within.base < start < r.commit:
        return within
    found: list[Header] = []
    while len(found) < most:
        headers = r.log.between(start, r.commit, most)
        if not headers:
            break
        for header in headers:
            if header.kind is Kind.UNKNOWN:
                return header
            if header.kind is Kind.LOST:
                return _bounded(found[:most], r.limits.fetch_bytes_max) if found else header
            if header.kind is Kind.DATA:
                found.append(header)
        start = headers[-1].end
    return _bounded(found[:most], r.limits.fetch_bytes_max)


def _bounded(headers: list[Header], bytes_max: int) -> list[Header]:
    """So many bytes, but at least one entry; the commit offset tells that there are more."""
    size = 0
    for count, header in enumerate(headers):
        size += header.body_bytes
        if count and size > bytes_max:
            return headers[:count]
    return headers


def confirmed(r: ReplicaState, lead: Leadership, read: PendingRead) -> bool:
    return lead.echoed_by_quorum(r.member, read.beat)


def dismiss(r: ReplicaState) -> None:
    """The leadership ends: whether what they wait for survives, the next leader will tell."""
    if r.lead is None:
        return
    for waiters in r.lead.waiters.values():
        for waiter in waiters:
            r.send(waiter.client, ClientRefused(waiter.session, waiter.number, NotLeader(None)))
    for read in r.lead.reads:
        r.send(read.client, ClientRefused(0, read.nonce, NotLeader(None)))
