"""Serving clients: admitted by session, appended at once, answered after the commit."""

from __future__ import annotations

from shardlog.protocol import answering, leading
from shardlog.protocol.entry import Header, Kind, Seal
from shardlog.protocol.failures import (
    DifferentRequest,
    Illegal,
    NotLeader,
    NotReady,
    OffsetTrimmed,
    Overloaded,
    Refusal,
    ReplyForgotten,
    SessionUnknown,
)
from shardlog.protocol.leadership import Leadership, PendingRead, Waiter
from shardlog.protocol.messages import Append, Appended, Envelope, Read, Register, Registered
from shardlog.protocol.replica_state import ReplicaState
from shardlog.protocol.sessions import admit, session_of

_DATA = Kind.DATA  # looked up once: every append asks


WAITERS_OF_ONE_MAX = 8
"""For one entry."""


def refusal_to_serve(r: ReplicaState) -> Refusal | None:
    lead = r.lead
    if lead is None:
        return NotLeader(r.leader.node if r.leader else None)
    if not lead.serving:
        return NotReady("the log is being repaired")
    return None


def refusal_to_write(r: ReplicaState, lead: Leadership) -> Refusal | None:
    if r.now_ms < lead.paused_until_ms:
        return NotReady("leadership is being handed over")
    if len(lead.waiters) >= r.limits.appends_inflight_max:
        return Overloaded(len(lead.waiters))
    if r.backlogged():
        return Overloaded(r.log.load(r.durable_end, r.log.end)[0])
    return None


def register(r: ReplicaState, envelope: Envelope, message: Register) -> None:
    refusal = refusal_to_serve(r)
    if refusal or r.lead is None:
        r.refuse(envelope, refusal or NotLeader(None))
        return
    if not message.nonce:
        r.refuse(envelope, Illegal("a registration needs a nonce other than 0"))
        return
    known = r.lead.tip.opened_with(message.nonce)
    if known is not None:
        _register_again(r, r.lead, envelope, message, known)
        return
    refusal = refusal_to_write(r, r.lead) or _refusal_to_evict(r, r.lead)
    if refusal:
        r.refuse(envelope, refusal)
        return
    header = leading.append(r, r.lead, Kind.REGISTER, 0, message.nonce, 1, b"", 0)
    if r.limits.session_idle_ms:
        r.lead.used_ms[session_of(header)] = r.now_ms
    wait(r.lead, header.end, Waiter(envelope.src, 0, message.nonce, session_of(header)))
    r.owes_sync = True


def _refusal_to_evict(r: ReplicaState, lead: Leadership) -> Refusal | None:
    """The session that would make room must have been idle, as far as this leader can know."""
    idle_ms, evicted = r.limits.session_idle_ms, lead.tip.to_evict()
    if not idle_ms or evicted is None:
        return None
    if r.now_ms - lead.used_ms.setdefault(evicted, r.now_ms) < idle_ms:
        return Overloaded(len(lead.tip.sessions))
    del lead.used_ms[evicted]
    return None


def _register_again(
    r: ReplicaState, lead: Leadership, envelope: Envelope, message: Register, session: int
) -> None:
    """A registration that is sent again gets the session of the first try, once it is committed."""
    if session in r.sessions.sessions:
        r.answer(envelope, Registered(message.nonce, session))
        return
    last = r.log.starting_at(lead.tip.sessions[session].used)
    if last is not None:
        wait(lead, last.end, Waiter(envelope.src, 0, message.nonce, session))


def append(r: ReplicaState, envelope: Envelope, message: Append) -> None:
    refusal = refusal_to_serve(r)
    lead = r.lead
    if refusal or lead is None:
        r.refuse(envelope, refusal or NotLeader(None))
        return
    if message.count < 1:
        r.refuse(envelope, Illegal("a batch holds at least one record"))
        return
    known = admitted(lead, message)
    if isinstance(known, SessionUnknown):
        r.refuse(envelope, refusal_of_a_stranger(r, lead, known))
    elif isinstance(known, Refusal):
        r.refuse(envelope, known)
    elif known is not None:
        _answer_again(r, lead, envelope, message, known)
    else:
        refusal = refusal_to_write(r, lead)
        if refusal:
            r.refuse(envelope, refusal)
            return
        _append_new(r, lead, envelope, message)


def admitted(lead: Leadership, message: Append) -> int | Refusal | None:
    """By the table at the tip of the log, the uncommitted suffix included (rule 18)."""
    return admit(lead.tip, message.session, message.request)


def refusal_of_a_stranger(r: ReplicaState, lead: Leadership, unknown: SessionUnknown) -> Refusal:
    """A client gives its session up when it hears this, so it must not rest on what may be undone.

    An eviction that is not committed may be cut off.  And of a session that is not in our log
    another leader may know, unless a quorum is with us.
    """
    session, committed = unknown.session, r.sessions
    if session in committed.sessions:
        return NotReady("the session's eviction is not committed yet")
    suffix = r.log.between(committed.applied, r.log.end)
    if any(each.kind is Kind.REGISTER and session_of(each) == session for each in suffix):
        return NotReady("the session is not committed here yet")
    if lead.heard_by_quorum(r.member, r.now_ms - r.limits.quorum_silence_ms):
        return unknown
    if lead.resting and r.now_ms - lead.beat_ms >= r.limits.heartbeat_ms:
        leading.beat(r, lead)  # whoever asks again is answered
    return NotReady("the leader has not heard a quorum lately")


def _append_new(r: ReplicaState, lead: Leadership, envelope: Envelope, message: Append) -> None:
    if r.limits.session_idle_ms:
        lead.used_ms[message.session] = r.now_ms
    header = leading.append(
        r,
        lead,
        _DATA,
        message.session,
        message.request,
        message.count,
        message.body,
        message.body_checksum,
    )
    waiter = Waiter(envelope.src, message.session, message.request, header.base)
    wait(lead, header.end, waiter)
    r.owes_sync = True


def _answer_again(
    r: ReplicaState, lead: Leadership, envelope: Envelope, message: Append, base: int
) -> None:
    """A retry gets the offset of the first try, and not before that is committed."""
    first = r.log.starting_at(base)
    if first is None:
        r.refuse(envelope, ReplyForgotten(message.request + 1))  # trimmed: nobody can compare
        return
    refusal = refusal_of_retry(r, first, message)
    if refusal:
        r.refuse(envelope, refusal)
    elif base < r.commit:
        r.answer(envelope, Appended(message.session, message.request, base))
    else:
        wait(lead, first.end, Waiter(envelope.src, message.session, message.request, base))


def refusal_of_retry(r: ReplicaState, first: Header, message: Append) -> Refusal | None:
    """A used number with another batch is no retry, and must not be answered as one.

    That it was not appended is told only when what stands there is committed: else another leader
    may have a log in which it was.
    """
    if first.kind is Kind.UNKNOWN:
        return NotReady("the first try is being repaired")
    if is_same_request(r.seal, first, message):
        return None
    if first.base >= r.commit:
        return NotReady("another batch has this number, and is not committed yet")
    return DifferentRequest(first.base)


def is_same_request(seal: Seal, first: Header, message: Append) -> bool:
    """Whether `first` was made from this very request, by its place in the chain.

    That holds for a marker of a lost entry too: it has the entry's checksum, but not its body's.
    """
    return first.checksum == seal(
        first.epoch,
        first.base,
        message.count,
        _DATA,
        message.session,
        message.request,
        first.timestamp_ms,
        first.parent,
        message.body_checksum,
    )


def wait(lead: Leadership, end: int, waiter: Waiter) -> None:
    """A client that connects again and again waits for the same entry each time: the last count."""
    waiters = lead.waiters.setdefault(end, [])
    if waiter not in waiters:
        waiters.append(waiter)
        del waiters[:-WAITERS_OF_ONE_MAX]


def read(r: ReplicaState, envelope: Envelope, message: Read) -> None:
    refusal = refusal_to_serve(r)
    lead = r.lead
    if refusal or lead is None:
        r.refuse(envelope, refusal or NotLeader(None))
    elif message.start < r.log.first:
        r.refuse(envelope, OffsetTrimmed(r.log.first))
    elif len(lead.reads) >= r.limits.appends_inflight_max:
        r.refuse(envelope, Overloaded(len(lead.reads)))
    else:
        pending = PendingRead(
            envelope.src, message.nonce, message.start, message.entries_max, lead.beat + 1
        )
        lead.reads.append(pending)
        if lead.opened == r.epoch:
            leading.beat(r, lead)
        answering.answer_reads(r, lead)
