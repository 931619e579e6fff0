"""Following: announced first, cut to the common prefix, then fed in order.

The order on disk is what makes it safe to crash anywhere: the divergent suffix is gone durably
before the new history is adopted, and the history is adopted before an entry of it is accepted.
A follower acknowledges only what is synced; a standby, and a replica that is still syncing, only
tell how far they are.
"""

from __future__ import annotations

from shardlog.protocol import answering
from shardlog.protocol.effects import (
    Barrier,
    ResetLog,
    RewriteEntry,
    TrimLog,
    TruncateLog,
)
from shardlog.protocol.entry import Entry, Header, Kind, Member
from shardlog.protocol.failures import (
    BelowCommit,
    DifferentEntry,
    DivergenceMismatch,
    Illegal,
    ImpossibleState,
    NotReady,
    OtherElection,
    Refusal,
    StaleEpoch,
    WrongParent,
    WrongRole,
)
from shardlog.protocol.history import EPOCH_MAX, OPEN_END, divergence, epoch_at
from shardlog.protocol.log import Log
from shardlog.protocol.messages import (
    Ack,
    Announce,
    Entries,
    Envelope,
    Heartbeat,
    InstallSnapshot,
    Membership,
    Progress,
    Snapshot,
    SnapshotInstalled,
    SnapshotOffer,
    SnapshotRequest,
)
from shardlog.protocol.replica_state import Due, Promise, ReplicaState, Rewrite
from shardlog.protocol.sessions import SessionTable
from shardlog.protocol.states import Cause, Role
from shardlog.protocol.transferring import Transferring

FOLLOWING = (Role.FOLLOWER, Role.STANDBY)


# --- announcements -----------------------------------------------------------------------------


def announce(r: ReplicaState, envelope: Envelope, message: Announce) -> None:
    leader = Member(envelope.src, envelope.src_incarnation)
    if message.epoch == r.epoch and r.role in FOLLOWING and r.leader == leader:
        _announce_again(r, leader, message)
        return
    cut = divergence(r.history, r.log.may_end, message.history, OPEN_END)
    refusal = refusal_to_follow(r, message, cut)
    if refusal:
        r.refuse(envelope, refusal)
        if isinstance(refusal, DivergenceMismatch):
            _tell_position(r, leader, message.epoch)
        return
    _adopt(r, leader, message, cut)


def refusal_to_follow(r: ReplicaState, message: Announce, cut: int) -> Refusal | None:
    """A follower recomputes where the logs part, and gives up nothing that is committed."""
    if message.epoch > EPOCH_MAX:
        return Illegal(f"epoch {message.epoch}: more than {EPOCH_MAX}")
    if message.epoch < r.epoch:
        return StaleEpoch(r.epoch)
    if r.is_promised_elsewhere(message.epoch, message.election):
        return OtherElection(r.epoch)
    if message.epoch == r.epoch and r.role is not Role.FENCED:
        return WrongRole(r.role, r.epoch)
    if r.syncing and message.snapshot is None:
        return NotReady("syncing: a snapshot has to be finished first")
    if r.syncing and message.snapshot and message.snapshot.end < r.log.first:
        return NotReady("syncing: the snapshot ends before our log begins")
    if cut < r.commit:
        return BelowCommit(r.commit)
    if cut != min(message.cut, r.log.may_end):
        return DivergenceMismatch(message.cut, cut)
    return None


def _adopt(r: ReplicaState, leader: Member, message: Announce, cut: int) -> None:
    """Truncate durably, adopt the history; entries come later (rule 2)."""
    _cut(r, cut)
    answering.dismiss(r)
    r.promise(message.epoch, message.election)
    r.history = message.history
    if message.members:
        r.membership = Membership(message.epoch, message.election, message.members)
    r.leader = leader
    r.at_odds = False
    r.told, r.leader_rests = -1, False
    r.become(Cause.ANNOUNCE_STANDBY if message.standby else Cause.ANNOUNCE)
    if message.snapshot is not None:
        _begin_sync(r, message.snapshot)
    r.tail_until = message.end
    close_tail(r)
    if message.end > r.log.end:
        r.transfer = Transferring(leader, r.log.end, message.end, r.now_ms)
    r.persist()
    r.sync(Due.FOLLOWING, end=r.log.end)


def _cut(r: ReplicaState, cut: int) -> None:
    """Drop what parts from the history that is about to be adopted."""
    if cut < r.log.may_end:
        r.log.truncate(cut)
        r.durable_end = min(r.durable_end, cut)
        r.rewrites = [rewrite for rewrite in r.rewrites if rewrite.base < cut]
        r.emit(TruncateLog(cut))
        r.emit(Barrier())


def close_tail(r: ReplicaState) -> None:
    """All that the unreadable tail may have held has come anew, so nothing is in doubt."""
    if r.log.open_tail and r.log.end >= r.tail_until:
        r.log.truncate(r.log.end)
        r.in_doubt = 0
        r.emit(TruncateLog(r.log.end))


def _announce_again(r: ReplicaState, leader: Member, message: Announce) -> None:
    """A duplicate, or the leader trimmed past us meanwhile."""
    if message.snapshot is not None and r.log.end < message.snapshot.first:
        _begin_sync(r, message.snapshot)
        r.persist()
    r.sync(Due.FOLLOWING, end=r.log.end)


def followed(r: ReplicaState, promise: Promise) -> None:
    """The adoption is on disk: the leader may start."""
    r.durable_end = max(r.durable_end, min(promise.end, r.log.end))
    if not _finish_sync(r):
        acknowledge(r)


# --- entries -----------------------------------------------------------------------------------


def entries(r: ReplicaState, envelope: Envelope, message: Entries) -> None:
    if not _from_my_leader(r, envelope, message.epoch) or r.backlogged():
        return
    before = r.log.end
    weight = r.log.weight
    fresh, refusal = take(r, message.entries)
    if r.transfer is not None:
        note_progress(r, envelope, message.entries, before)
    if refusal:
        r.refuse(envelope, refusal)
    else:
        learn(r, message.commit, message.first)
    if fresh or r.rewrites:
        if r.log.open_tail:
            close_tail(r)
        if r.log.weight - weight < r.limits.settle_bytes:
            r.owes_sync = True
        else:
            settle(r)


def settle(r: ReplicaState) -> None:
    """What is long enough for a sync of its own is acknowledged by itself.

    The leader then sends more while the rest of what came with it is on its way to the disk.
    """
    r.owes_sync = False
    if r.gathered:
        r.write_gathered()
    r.sync(Due.ENTRIES, end=r.log.end)


def take(r: ReplicaState, batch: tuple[Entry, ...]) -> tuple[bool, Refusal | None]:
    """Append what continues the log, repair what is bad, skip what is here; stop at a misfit.

    Whether something was appended, and what did not fit.
    """
    fresh = False
    log = r.log
    for entry in batch:
        header = entry.header
        base = header.base
        if base >= log.end and base not in log.marks:
            refusal = refusal_to_append(log, header)
            if refusal is None:
                log.append(header)
                r.gather(entry)
                fresh = True
        elif base < log.first:
            continue
        elif base in log.marks:
            refusal = repair(r, entry)
        else:
            refusal = log.refusal_of_duplicate(header)
        if refusal:
            if isinstance(refusal, DifferentEntry | WrongParent) and base not in log.marks:
                r.at_odds = True
            return fresh, refusal
    return fresh, None


def note_progress(
    r: ReplicaState, envelope: Envelope, batch: tuple[Entry, ...], before: int
) -> None:
    """For the status: what of a batch was new behind `before`, and whether that was all."""
    if r.transfer is not None:
        new = [each for each in batch if before <= each.header.base < r.log.end]
        source = Member(envelope.src, envelope.src_incarnation)
        r.transferred_bytes += r.transfer.took(source, new, r.now_ms)
        if r.log.end >= r.transfer.end:
            r.transfer = None


def refusal_to_append(log: Log, header: Header) -> Refusal | None:
    return log.refusal_to_append(header)


def repair(r: ReplicaState, entry: Entry) -> Refusal | None:
    """A good copy of a bad slot: written in place, acknowledged only when synced."""
    refusal = r.log.repair(entry.header)
    if refusal is None:
        r.rewrites.append(Rewrite(entry.header.base, r.token + 1))
        r.emit(RewriteEntry(entry))
        r.apply()
    return refusal


def written(r: ReplicaState, promise: Promise) -> None:
    """Entries, or repairs, are durable."""
    r.durable_end = max(r.durable_end, min(promise.end, r.log.end))
    if not _finish_sync(r) and r.role in FOLLOWING:
        acknowledge(r)


def heartbeat(r: ReplicaState, envelope: Envelope, message: Heartbeat) -> None:
    """Where two of them say that all is committed, the next one may take its time."""
    if not _from_my_leader(r, envelope, message.epoch):
        return
    if message.quorum_fresh:
        r.heard_ms = r.now_ms
    r.leader_rests = message.commit == r.told == r.log.end
    r.told = message.commit
    learn(r, message.commit, message.first)
    acknowledge(r, message.beat)


def disconnected(r: ReplicaState, node: str) -> None:
    """Whatever was heard before, nothing is heard now: no need to wait for a heartbeat to fail."""
    if r.leader is not None and r.leader.node == node:
        r.heard_ms = -1


def _from_my_leader(r: ReplicaState, envelope: Envelope, epoch: int) -> bool:
    """Announce before append: nothing is taken from anyone else (N5, N8)."""
    if r.role in FOLLOWING and epoch == r.epoch and r.leader is not None:
        if r.leader == (envelope.src, envelope.src_incarnation):
            return True
        r.refuse(envelope, Illegal("another replica leads this epoch"))
    elif epoch < r.epoch:
        r.refuse(envelope, StaleEpoch(r.epoch))
    elif r.role is Role.FENCED and epoch == r.epoch:
        _tell_position(r, Member(envelope.src, envelope.src_incarnation), epoch)
    else:
        r.refuse(envelope, WrongRole(r.role, r.epoch))
    return False


def _tell_position(r: ReplicaState, leader: Member, epoch: int) -> None:
    """Restarted, say: tell the leader what is here, so that it announces anew."""
    if r.role is Role.FENCED and epoch == r.epoch and not r.promises:
        r.send(leader, r.fence_answer())


def learn(r: ReplicaState, commit: int, first: int) -> None:
    """What the leader says is committed and trimmed, as far as our log reaches.

    While syncing nothing is learned: the commit context comes last (V8).  Safety does not rest on
    it, so no test can show its absence.  What the leader calls committed is so, up to our end; only
    the session table would be wrong, folded from the middle of the log.  The one way out of syncing
    puts the snapshot's table in its place (`_take_table`), and until then this replica neither
    leads, acks nor describes a snapshot.
    """
    if r.syncing:
        return
    r.advance_commit(min(commit, r.log.end))
    if r.sessions.applied < min(first, r.commit) and r.leader:
        # What could be applied next is unreadable, and the leader has trimmed it.
        r.send(r.leader, SnapshotRequest(r.epoch))
    if r.log.first < first <= r.sessions.applied and r.log.is_boundary(first):
        trim(r, first)


def trim(r: ReplicaState, first: int) -> None:
    """Never above the commit offset, never while Fenced; the session table is kept first."""
    r.persist()
    r.emit(Barrier())
    r.log.trim(first)
    r.rewrites = [rewrite for rewrite in r.rewrites if rewrite.base >= first]
    r.emit(TrimLog(first, r.log.boundary))


def acknowledge(r: ReplicaState, beat: int = 0) -> None:
    """A follower acks what is durable; a standby or a syncing replica never does (T12, V9)."""
    if r.leader is None:
        return
    if may_ack(r):
        r.send(r.leader, Ack(r.epoch, r.acked_end(), r.log.end, beat))
    else:
        r.send(r.leader, Progress(r.epoch, r.log.end))


def may_ack(r: ReplicaState) -> bool:
    return r.role is Role.FOLLOWER and r.syncing is None and not r.at_odds


# --- snapshots ---------------------------------------------------------------------------------


def offered(r: ReplicaState, envelope: Envelope, message: SnapshotOffer) -> None:
    """Take over the session table of a leader that has trimmed what we can no longer read.

    Our log is whole from the snapshot's first offset on; only the table is missing.
    """
    snapshot = message.snapshot
    ours = r.role in FOLLOWING and message.epoch == r.epoch and r.leader == snapshot.source
    if ours and r.sessions.applied < snapshot.first and snapshot.end <= r.durable_end:
        _take_table(r, snapshot)


def install(r: ReplicaState, envelope: Envelope, message: InstallSnapshot) -> None:
    """A new node starts from the leader's snapshot; `repairing` fetches it.

    It may have got part of another leader's snapshot before: only the common prefix is kept.
    """
    snapshot = message.snapshot
    cut = divergence(r.history, r.log.may_end, snapshot.history, OPEN_END)
    if message.epoch < r.epoch:
        r.refuse(envelope, StaleEpoch(r.epoch))
    elif message.epoch > EPOCH_MAX:
        r.refuse(envelope, Illegal(f"epoch {message.epoch}: more than {EPOCH_MAX}"))
    elif r.role is Role.LEADER:
        r.refuse(envelope, WrongRole(r.role, r.epoch))
    elif r.role in FOLLOWING or (r.syncing is None and r.log.end):
        # It has what it needs to follow; a leader will see to the rest.
        r.answer(envelope, SnapshotInstalled(message.epoch, r.log.end))
    elif not snapshot.end:
        r.answer(envelope, SnapshotInstalled(message.epoch, 0))
    elif cut < r.commit:
        r.refuse(envelope, BelowCommit(r.commit))
    elif snapshot.end < r.log.first:
        r.refuse(envelope, NotReady("syncing: the snapshot ends before our log begins"))
    else:
        _cut(r, cut)
        r.promise(message.epoch, 0)
        r.others = message.others
        _begin_sync(r, snapshot)
        r.history = snapshot.history
        r.persist()
        r.sync(Due.INSTALLED, end=r.log.end, to=envelope.src)


def installed(r: ReplicaState, promise: Promise) -> None:
    r.durable_end = max(r.durable_end, min(promise.end, r.log.end))
    if not _finish_sync(r) and r.syncing is None and promise.to:
        r.send(promise.to, SnapshotInstalled(r.epoch, r.log.end))


def _begin_sync(r: ReplicaState, snapshot: Snapshot) -> None:
    """Start over at the snapshot's first offset, unless what is here already reaches it."""
    if snapshot.end < r.log.first:
        # A sync that was under way is finished meanwhile, and this one would lead back.
        return
    r.syncing = snapshot
    r.fetch_until = 0
    if snapshot.first <= r.log.end:
        return
    r.in_doubt = max(r.in_doubt, r.log.tail_slots if r.log.open_tail else 0)
    r.log = Log(snapshot.first, snapshot.boundary, r.archive)
    if r.in_doubt:
        r.log.open_at_end(epoch_at(snapshot.history, snapshot.first), r.in_doubt)
    r.durable_end = snapshot.first
    r.rewrites = []
    r.commit = max(r.commit, snapshot.first)
    r.emit(ResetLog(snapshot.first, snapshot.boundary))
    r.emit(Barrier())


def _finish_sync(r: ReplicaState) -> bool:
    """Once everything has arrived and is durable, the commit context follows, last (V8)."""
    snapshot = r.syncing
    if snapshot is None or r.durable_end < snapshot.end or not _whole(r, snapshot):
        return False
    if r.log.checksum_before(snapshot.end) != snapshot.head:
        raise ImpossibleState(f"what was synced up to {snapshot.end} is not the snapshot")
    r.syncing = None
    _take_table(r, snapshot)
    r.persist()
    r.sync(Due.FOLLOWING if r.role in FOLLOWING else Due.INSTALLED, end=r.log.end)
    return True


def _whole(r: ReplicaState, snapshot: Snapshot) -> bool:
    """What was fetched may have decayed meanwhile; a follower's leader sees to all but the head."""
    if r.role is Role.FENCED:
        return not any(snapshot.first <= base < snapshot.end for base in r.log.marks)
    last = r.log.covering(snapshot.end - 1)
    return last is None or last.kind is not Kind.UNKNOWN


def _take_table(r: ReplicaState, snapshot: Snapshot) -> None:
    r.sessions = SessionTable.at(snapshot.end, snapshot.sessions, snapshot.session_limits)
    r.commit = max(r.commit, snapshot.end)
    r.apply()
