"""Leading: bring the log up, announce, replicate, commit.

A replica leads an epoch only if it was Fenced at exactly that epoch, and it has written down that
it leads before it says so: after a restart it will never lead that epoch again (rule 1).  Before
the epoch is opened its log is made whole, and equal to what the election decided to keep.  Then
one epoch-start entry is written at once, so that older entries can commit on an idle shard.
"""

from __future__ import annotations

from shardlog.protocol import answering, coverage, losing, trimming
from shardlog.protocol.commit import committed_end
from shardlog.protocol.cursor import Cursor
from shardlog.protocol.effects import (
    Barrier,
    SendEntries,
    TruncateLog,
)
from shardlog.protocol.entry import Body, Header, Kind, Member, entry_of, sealed
from shardlog.protocol.failures import (
    BelowCommit,
    DivergenceMismatch,
    LostDisk,
    NoReplica,
    NotReady,
    OffsetGap,
    OtherElection,
    Refusal,
    StaleEpoch,
    UnknownMember,
    WrongRole,
)
from shardlog.protocol.history import OPEN_END, Span, divergence, extended, same_election
from shardlog.protocol.leadership import Leadership
from shardlog.protocol.messages import (
    Aborted,
    Ack,
    AddFollower,
    Announce,
    BecameLeader,
    BecomeLeader,
    Envelope,
    FenceAnswer,
    FollowerAdded,
    Heartbeat,
    Membership,
    Prepared,
    Progress,
    Refused,
    Snapshot,
    SnapshotOffer,
    SnapshotRequest,
    Trim,
)
from shardlog.protocol.replica_state import Due, Promise, ReplicaState
from shardlog.protocol.states import Cause, Role
from shardlog.protocol.sync import Extent, Negotiated, Plan, negotiate

# --- becoming leader ---------------------------------------------------------------------------


def become_leader(r: ReplicaState, envelope: Envelope, message: BecomeLeader) -> None:
    lead = r.lead
    if lead and r.epoch == message.epoch and same_election(r.election, message.election):
        lead.operator = envelope.src
        if lead.serving and lead.opened == r.epoch:
            r.answer(envelope, BecameLeader(r.epoch, lead.needless))
        return
    cut = divergence(r.history, r.log.may_end, message.kept.history, message.kept.end)
    refusal = refusal_to_lead(r, message, cut)
    if refusal:
        r.refuse(envelope, refusal)
        return
    if cut < r.log.may_end:
        r.log.truncate(cut)
        r.durable_end = min(r.durable_end, cut)
        r.emit(TruncateLog(cut))
        r.emit(Barrier())
    r.become(Cause.BECOME_LEADER)
    r.led = r.epoch
    r.membership = Membership(r.epoch, r.election, message.ensemble)
    r.leader = None
    r.history = extended(message.kept.history, Span(r.epoch, message.kept.end, r.election))
    r.lead = lead = Leadership(
        message.ensemble,
        message.quorum,
        message.kept,
        message.sources,
        message.losses,
        message.found,
    )
    lead.operator = envelope.src
    for answer in message.followers:
        add_cursor(r, lead, answer, standby=False)
    r.persist()
    r.sync(Due.LED, to=envelope.src)


def refusal_to_lead(r: ReplicaState, message: BecomeLeader, cut: int) -> Refusal | None:
    """Only while Fenced at exactly that epoch, and never twice (rule 1)."""
    if message.epoch < r.epoch:
        return StaleEpoch(r.epoch)
    if r.is_promised_elsewhere(message.epoch, message.election):
        return OtherElection(r.epoch)
    if message.epoch > r.epoch or r.role is not Role.FENCED or r.led >= message.epoch or r.syncing:
        return WrongRole(r.role, r.epoch)
    if cut < r.commit:
        return BelowCommit(r.commit)
    return None


def led(r: ReplicaState, _: Promise) -> None:
    """It is written that we lead; go on as soon as the log is whole."""
    open_when_whole(r)


def open_when_whole(r: ReplicaState) -> None:
    lead = r.lead
    if lead is None or lead.serving:
        return
    if lead.losses and losing.settle(r, lead):
        r.owes_sync = True
        return
    if missing_from(r, lead) is not None:
        return
    lead.serving = True
    if r.in_doubt:
        # The log is what the election decided to keep: nothing may stand behind it any more.
        r.in_doubt = 0
        r.persist()
    lead.tip = r.sessions.copy()
    lead.tip.fold(r.log.between(lead.tip.applied, r.log.end))
    open_epoch(r, lead, lead.operator)


def missing_from(r: ReplicaState, lead: Leadership) -> int | None:
    """The first offset that has to be repaired or fetched before the epoch can be opened."""
    for header in r.log.bad():
        if header.base >= r.commit or header.kind is Kind.UNKNOWN:
            return header.base
    return r.log.end if r.log.end < lead.kept.end else None


def open_epoch(r: ReplicaState, lead: Leadership, operator: str) -> None:
    """The epoch has just risen: one entry at once, and an announcement when it is durable."""
    lead.epoch_first = r.log.end
    for cursor in lead.cursors.values():
        cursor.unannounce(OPEN_END if cursor.announced else cursor.cut)
    start_epoch(r, lead)
    r.sync(Due.OPENED, end=r.log.end, to=operator)


def start_epoch(r: ReplicaState, lead: Leadership) -> None:
    """The epoch-start entry (rule 4).  It may start the table of sessions over (rule 22).

    The first of a log names the limits that hold for its whole life.  One behind a loss of which
    no header is left names them again: whose requests were lost, some replicas may know and others
    not, and from here on their tables are equal.
    """
    sessions_max = replies_max = 0
    if not r.log.end:
        sessions_max, replies_max = r.limits.sessions_max, r.limits.replies_max
    elif losing.leaves_sessions_in_doubt(lead):
        sessions_max, replies_max, _ = lead.tip.limits
    append(r, lead, Kind.EPOCH_START, sessions_max, replies_max, 1, b"", 0)


def opened(r: ReplicaState, promise: Promise) -> None:
    lead = r.lead
    if lead is None:
        return
    lead.opened = r.epoch
    r.durable_end = max(r.durable_end, promise.end)
    if lead.epoch_first == lead.tenure_first:
        lead.needless = losing.needless(r, lead)
        lead.losses = tuple(each for each in lead.losses if each.id not in lead.needless)
        r.send(promise.to, BecameLeader(r.epoch, lead.needless))
    elif lead.change is None:
        r.send(promise.to, Aborted(r.epoch))
    else:
        r.send(promise.to, Prepared(r.epoch, coverage.cover(r, lead)))
    for cursor in lead.cursors.values():
        announce_to(r, lead, cursor)
    advance(r, lead)


# --- cursors -----------------------------------------------------------------------------------


def add_follower(r: ReplicaState, envelope: Envelope, message: AddFollower) -> None:
    lead = r.lead
    refusal: Refusal | None = None
    if lead is None or message.epoch != r.epoch:
        refusal = not_leading(r, message.epoch)
    elif not message.standby and not _belongs(lead, message.answer.member):
        refusal = UnknownMember(message.answer.member)
    else:
        refusal = add_cursor(r, lead, message.answer, message.standby)
        if refusal is None and lead.opened == r.epoch:
            announce_to(r, lead, lead.cursors[message.answer.member])
    if refusal:
        r.refuse(envelope, refusal)
    else:
        r.answer(envelope, FollowerAdded(r.epoch, message.answer.member))


def _belongs(lead: Leadership, member: Member) -> bool:
    joining = lead.change.new if lead.change else None
    return member in lead.ensemble or member == joining


def not_leading(r: ReplicaState, epoch: int) -> Refusal:
    return StaleEpoch(r.epoch) if epoch < r.epoch else WrongRole(r.role, r.epoch)


def add_cursor(
    r: ReplicaState, lead: Leadership, answer: FenceAnswer, standby: bool
) -> Refusal | None:
    """From what the follower says it holds: where it parts from us, and what it lacks."""
    cut = divergence(answer.history, answer.may_end, r.history, OPEN_END)
    if cut < answer.commit:
        return _refusal_of_committed(lead, answer)
    # Our log may still be short of what was kept, while it is being repaired.
    ours = Extent(r.log.first, max(r.log.end, lead.kept.end), r.commit)
    plan = negotiate(ours, Extent(answer.first, min(cut, answer.end), answer.commit))
    if not isinstance(plan, Negotiated):
        return plan
    cursor = lead.cursors.setdefault(answer.member, Cursor(answer.member, standby))
    if cursor.lost:
        return LostDisk(answer.member, cursor.promised)
    lead.trimmed = max(lead.trimmed, answer.first)
    lead.resting = False
    lead.fetching.pop(answer.member, None)
    cursor.unannounce(cut)
    cursor.acked = min(cursor.acked, answer.intact_end)
    if answer.open_tail:
        # It says itself that its tail is in doubt: it is filled again, and is no lost disk.
        cursor.promised = min(cursor.promised, answer.end)
    # What it has trimmed, or starts over behind, is committed.  We may not know yet: nobody else
    # may keep what is bad here below, and one that starts over cannot ack before.
    commit_to(r, lead, min(answer.commit if answer.syncing else answer.first, r.log.end))
    wiped = plan.plan is Plan.WIPE or answer.syncing
    cursor.snapshot = describe(r) if wiped else None
    return None


def _refusal_of_committed(lead: Leadership, answer: FenceAnswer) -> Refusal:
    """What the replica has committed, this log lacks.

    Where the loss of a tail was accepted, the replica was away then, and is made anew.  Else the
    metadata is of another past, and the coordinator halts the shard (rule 21).
    """
    if any(not lost.count and lost.base < answer.commit for lost in lead.losses):
        cursor = lead.cursors.setdefault(answer.member, Cursor(answer.member, standby=False))
        cursor.lost = True
        return LostDisk(answer.member, answer.commit)
    return BelowCommit(answer.commit)


def is_lost(cursor: Cursor, ack: Ack) -> bool:
    """A follower that comes back below its last ack has lost its disk (rule 15).

    Acks may be late; one that echoes a heartbeat sent after the earlier ack came in is not.
    """
    return ack.beat > cursor.promised_beat and ack.at < cursor.promised


def announce_to(r: ReplicaState, lead: Leadership, cursor: Cursor) -> None:
    if cursor.announced or cursor.lost:
        return
    cursor.sent_ms = r.now_ms
    r.send(
        cursor.member,
        Announce(
            r.epoch,
            r.history,
            r.log.end,
            cursor.cut,
            r.commit,
            cursor.standby,
            cursor.snapshot,
            r.election,
            lead.members(),
        ),
    )


def returned(r: ReplicaState, envelope: Envelope, answer: FenceAnswer) -> None:
    """A follower has restarted and tells what it holds: announce anew."""
    lead = r.lead
    if lead is None or answer.epoch != r.epoch or answer.member not in lead.cursors:
        return
    if answer.member != (envelope.src, envelope.src_incarnation) or lead.opened != r.epoch:
        return
    if add_cursor(r, lead, answer, standby=False) is None:
        announce_to(r, lead, lead.cursors[answer.member])


def refused(r: ReplicaState, envelope: Envelope, message: Refused) -> None:
    """A follower said no.  A higher epoch ends this leadership (N8)."""
    lead = r.lead
    if lead is None:
        return
    refusal = message.refusal
    cursor = lead.cursors.get(Member(envelope.src, envelope.src_incarnation))
    if isinstance(refusal, StaleEpoch) and refusal.epoch > r.epoch:
        step_down(r)
    elif isinstance(refusal, NoReplica):
        _forget_standby(lead, Member(envelope.src, refusal.asked))
    elif cursor is None or message.epoch > r.epoch:
        return
    elif isinstance(refusal, OffsetGap) and cursor.announced:
        if cursor.rewind(refusal.expected):
            replicate(r, lead, cursor)
    elif isinstance(refusal, DivergenceMismatch) and _unannounced(r, cursor, message):
        # It is not what we took it for: forget it, and let the coordinator fence it again.
        del lead.cursors[cursor.member]
    elif isinstance(refusal, NotReady) and cursor.snapshot and not cursor.announced:
        # It ends before the follower's log begins: perhaps more is committed by now.
        cursor.snapshot = describe(r)


def _forget_standby(lead: Leadership, gone: Member) -> None:
    """A cancelled standby was destroyed.  It never counted, so nothing is lost with its cursor."""
    cursor = lead.cursors.get(gone)
    if cursor is not None and cursor.standby:
        del lead.cursors[gone]


def _unannounced(r: ReplicaState, cursor: Cursor, message: Refused) -> bool:
    """Refused by a replica that is not even Fenced at our epoch: it cannot tell us more."""
    return message.epoch < r.epoch and not cursor.announced


def step_down(r: ReplicaState) -> None:
    """No longer leader of an epoch that we will never lead again; clients look elsewhere."""
    answering.dismiss(r)
    r.become(Cause.STEP_DOWN)


# --- replication -------------------------------------------------------------------------------


def append(
    r: ReplicaState,
    lead: Leadership,
    kind: Kind,
    session: int,
    request: int,
    count: int,
    body: Body,
    body_checksum: int,
) -> Header:
    """Write at the end of the log; the caller asks for the sync."""
    log = r.log
    timestamp_ms, base, parent = r.clock_ms, log.first, log.boundary
    if log.headers:
        last = log.headers[-1]
        timestamp_ms = max(timestamp_ms, last.timestamp_ms)
        base, parent = last.base + last.count, last.checksum
    header = sealed(
        r.seal,
        r.epoch,
        base,
        count,
        kind,
        session,
        request,
        timestamp_ms,
        parent,
        body_checksum,
    )
    log.append(header)
    lead.resting = False
    lead.tip.fold((header,))
    r.gather(entry_of((header, body)))
    return header


def replicate(r: ReplicaState, lead: Leadership, cursor: Cursor) -> None:
    """Send what the follower lacks, within its bound."""
    while batch := cursor.to_send(r.log, r.limits, r.commit, r.feed_bytes):
        size = cursor.sent(batch, r.now_ms, lead.beat)
        if r.feed_bytes is not None and cursor.fed:
            r.feed_bytes -= size
        r.emit(SendEntries(cursor.member, r.epoch, tuple(batch), r.commit, r.log.first))


def replicate_all(r: ReplicaState, lead: Leadership) -> None:
    for cursor in lead.cursors.values():
        replicate(r, lead, cursor)


def written(r: ReplicaState, promise: Promise) -> None:
    """Our own sync: only now do we count ourselves."""
    r.durable_end = max(r.durable_end, min(promise.end, r.log.end))
    lead = r.lead
    if lead is None:
        return
    if lead.serving:
        advance(r, lead)
    else:
        open_when_whole(r)


def acked(r: ReplicaState, envelope: Envelope, message: Ack) -> None:
    cursor = _cursor_of(r, envelope, message.epoch)
    if cursor is None or r.lead is None or max(message.end, message.at) > r.log.end:
        return
    cursor.snapshot = None
    cursor.beat = max(cursor.beat, message.beat)
    if is_lost(cursor, message):
        cursor.lost = True
        return
    passed = message.beat > cursor.sent_beat
    cursor.confirm(message.end, message.at, r.now_ms, r.limits.resend_entries_ms, passed)
    cursor.note_promise(r.lead.beat)
    advance(r, r.lead)
    replicate(r, r.lead, cursor)


def progressed(r: ReplicaState, envelope: Envelope, message: Progress) -> None:
    """A standby, or a follower that syncs: fed, never counted."""
    cursor = _cursor_of(r, envelope, message.epoch)
    if cursor is None or r.lead is None or message.at > r.log.end:
        return
    if cursor.snapshot is not None and message.at >= cursor.snapshot.end:
        cursor.snapshot = None
    cursor.confirm(0, message.at, r.now_ms, r.limits.resend_entries_ms)
    replicate(r, r.lead, cursor)


def _cursor_of(r: ReplicaState, envelope: Envelope, epoch: int) -> Cursor | None:
    lead = r.lead
    if lead is None or epoch != r.epoch or lead.opened != epoch:
        return None
    cursor = lead.cursors.get(Member(envelope.src, envelope.src_incarnation))
    return None if cursor is None or cursor.lost else cursor


def advance(r: ReplicaState, lead: Leadership) -> None:
    """Commit what may be committed, and answer those who waited for it."""
    before = r.commit
    end = committed_end(
        lead.policy,
        lead.deciding_ensembles(),
        lead.counted(r.member, r.acked_end()),
        lead.epoch_first,
        before,
    )
    if end > before:
        commit_to(r, lead, min(end, r.log.end))
    if lead.trimmed > r.log.first:
        trimming.trim_more(r, lead)
    answering.answer_reads(r, lead)


def commit_to(r: ReplicaState, lead: Leadership, commit: int) -> None:
    """Raise the commit offset, and answer the clients that waited for it."""
    before = r.commit
    r.advance_commit(commit)
    answering.answer_committed(r, lead, before)


def tick(r: ReplicaState) -> None:
    """Heartbeats; announcements that got no answer; followers that wait for old entries."""
    lead = r.lead
    if lead is None or lead.opened != r.epoch:
        return
    for cursor in lead.cursors.values():
        if cursor.starved:
            replicate(r, lead, cursor)
    if lead.beat_ms >= 0 and r.now_ms - lead.beat_ms < pace_ms(r, lead):
        return
    beat(r, lead)
    for cursor in lead.cursors.values():
        if not cursor.announced and r.now_ms - cursor.sent_ms >= r.limits.resend_ms:
            announce_to(r, lead, cursor)
        elif cursor.announced and cursor.next < r.log.first:
            cursor.snapshot = describe(r)
            cursor.unannounce(OPEN_END)
            announce_to(r, lead, cursor)


def pace_ms(r: ReplicaState, lead: Leadership) -> int:
    return r.limits.rest_ms if lead.resting else r.limits.heartbeat_ms


def beat(r: ReplicaState, lead: Leadership) -> None:
    """Tell everyone the commit offset, and ask for a sign of life.

    Once nothing has happened between two heartbeats, and all have answered the first, the next one
    may take its time.  A follower can tell that too (`following.heartbeat`).
    """
    lead.resting = lead.is_quiet(r.commit, r.log.end)
    if lead.resting:
        lead.rested_ms = r.now_ms
    lead.told = r.commit
    lead.beat += 1
    lead.beat_ms = r.now_ms
    fresh = lead.quorum_fresh(r.member, r.now_ms, r.limits)
    for cursor in lead.cursors.values():
        if cursor.announced and not cursor.lost:
            r.send(cursor.member, Heartbeat(r.epoch, r.commit, r.log.first, lead.beat, fresh))


# --- snapshots and trimming ----------------------------------------------------------------------


def describe(r: ReplicaState) -> Snapshot:
    """All that is committed and applied here: what a replica that lacks our past starts from."""
    end = r.sessions.applied
    return Snapshot(
        r.member,
        r.history,
        r.log.first,
        r.log.boundary,
        end,
        r.log.checksum_before(end),
        r.sessions.at_rest(),
        r.sessions.limits,
    )


def offer_snapshot(r: ReplicaState, envelope: Envelope, message: SnapshotRequest) -> None:
    if r.lead is None or not r.lead.serving or message.epoch != r.epoch:
        r.refuse(envelope, not_leading(r, message.epoch))
    else:
        r.answer(envelope, SnapshotOffer(r.epoch, describe(r)))


def trim(r: ReplicaState, envelope: Envelope, message: Trim) -> None:
    if r.lead is None or not r.lead.serving or message.epoch != r.epoch:
        r.refuse(envelope, not_leading(r, message.epoch))
    else:
        _trim_to(r, r.lead, message.first)


def outgrown(r: ReplicaState, first: int) -> None:
    """Only a leader that serves drops what has become too much or too old; others follow it."""
    if r.lead is not None and r.lead.serving and r.upkeep.bounded:
        _trim_to(r, r.lead, first)


def _trim_to(r: ReplicaState, lead: Leadership, first: int) -> None:
    lead.trimmed = max(lead.trimmed, min(first, r.log.end))
    trimming.trim_more(r, lead)
