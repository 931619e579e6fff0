"""The words of a transcript: what each message, metadata write and change of state reads like.

Whatever only keeps the shard going, heartbeats and status polls, is not told.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from shardlog.protocol.coordination import Accepted, Rejected
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import (
    ResetLog,
    RewriteEntry,
    TrimLog,
    TruncateLog,
    WriteEntries,
)
from shardlog.protocol.entry import EntryId, Header, Kind, Member
from shardlog.protocol.failures import (
    BelowCommit,
    CorruptEntry,
    DifferentEntry,
    DivergenceMismatch,
    Illegal,
    LostDisk,
    NoReplica,
    NotLeader,
    NotReady,
    OffsetGap,
    OffsetTrimmed,
    Overloaded,
    Refusal,
    ReplyForgotten,
    RequestGap,
    SessionUnknown,
    StaleEpoch,
    StandbyLagging,
    UnknownMember,
    WrongParent,
    WrongRole,
)
from shardlog.protocol.history import OPEN_END, History, epoch_at, written
from shardlog.protocol.log import Log, Mark
from shardlog.protocol.messages import (
    Abort,
    Aborted,
    Ack,
    AddFollower,
    Announce,
    Append,
    Appended,
    BecameLeader,
    BecomeLeader,
    CannotServe,
    ClientRefused,
    Commit,
    Committed,
    Create,
    Created,
    Destroy,
    Destroyed,
    Entries,
    Envelope,
    Fence,
    FenceAnswer,
    Fetch,
    Fetched,
    FollowerAdded,
    Heartbeat,
    InstallSnapshot,
    Message,
    Operation,
    PauseWrites,
    Prepare,
    Prepared,
    Progress,
    Read,
    ReadResult,
    Reconfiguration,
    Refused,
    Register,
    Registered,
    Snapshot,
    SnapshotInstalled,
    SnapshotOffer,
    SnapshotRequest,
    StatusReport,
    StatusRequest,
    Trim,
    WritesPaused,
)
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.states import Role
from shardlog.sim.seal import seal_body
from shardlog.sim.stage import Narrator

NOISE = (Heartbeat, StatusRequest, StatusReport)

# --- parts ---------------------------------------------------------------------------------------


def member(who: Member | None) -> str:
    """A node; with its incarnation if it is not the first."""
    if who is None:
        return "nobody"
    return who.node if who.incarnation <= 1 else str(who)


def members(ensemble: Iterable[Member]) -> str:
    return " ".join(member(each) for each in ensemble)


def entry_at(history: History, end: int) -> str:
    """The entry below `end`, for logs whose entries hold one record each."""
    return str(EntryId(epoch_at(history, end - 1), end - 1)) if end else "nothing"


def change_words(change: Reconfiguration) -> str:
    match change.operation:
        case Operation.SWAP:
            return f"swap {member(change.old)} for {member(change.new)}"
        case Operation.EXPAND:
            return f"expand by {member(change.new)}"
    return f"contract {member(change.old)}"


def snapshot_words(snapshot: Snapshot) -> str:
    held = f"[{snapshot.first},{snapshot.end}) of {member(snapshot.source)}"
    return f"{held}, history {written(snapshot.history)}"


def shard_words(shard: Shard, before: Shard | None = None) -> str:
    """A record of the metadata, without what is empty, and the ensemble only if it is new."""
    parts = [str(shard.status)]
    if shard.epoch:
        parts[0] += f" epoch {shard.epoch}"
    if shard.leader:
        parts.append(f"leader {member(shard.leader)}")
    if shard.status is Status.CREATING and not shard.ensemble[0].incarnation:
        parts.append(f"ensemble {' '.join(each.node for each in shard.ensemble)} (not named yet)")
    elif before is None or before.ensemble != shard.ensemble:
        parts.append(f"ensemble {members(shard.ensemble)}")
    if shard.change:
        parts.append(f"{shard.phase}: {change_words(shard.change)}")
    if shard.joining:
        joining = shard.joining
        text = f"joining {member(joining.member)}"
        text += f" for {member(joining.old)}" if joining.old else ""
        text += " (not named yet)" if not joining.incarnation else ""
        parts.append(text + (", cancelled" if joining.cancelled else ""))
    if shard.preferred:
        parts.append(f"prefers {shard.preferred}")
    if shard.removed:
        parts.append(f"to destroy {members(shard.removed)}")
    if shard.halted:
        parts.append(f"halted: {shard.halted}")
    return ", ".join(parts)


def fence_words(answer: FenceAnswer) -> str:
    """What a replica may hold."""
    head = entry_at(answer.history, answer.end)
    if answer.open_tail:
        head += " and an unreadable tail"
    parts = [f"head {head}" if answer.end or answer.open_tail else "empty"]
    if answer.commit:
        parts.append(f"commit {answer.commit}")
    if answer.first:
        parts.append(f"first {answer.first}")
    if answer.history:
        parts.append(f"history {written(answer.history)}")
    for slot in answer.slots:
        if slot.mark is not Mark.PRESENT:
            parts.append(f"{EntryId(slot.epoch, slot.base)} {slot.mark.name.lower()}")
    if answer.syncing:
        parts.append("syncing")
    return ", ".join(parts)


def refusal_words(refusal: Refusal) -> str:
    match refusal:
        case StaleEpoch(epoch):
            return f"knows epoch {epoch}"
        case NoReplica(incarnation):
            return f"has incarnation {incarnation}" if incarnation else "has no replica"
        case WrongRole(role, epoch):
            return f"is {role.lower()} at {epoch}"
        case NotLeader(hint):
            return f"does not lead, try {hint}" if hint else "does not lead"
        case WrongParent(entry):
            return f"{entry} does not continue its log"
        case DifferentEntry(entry):
            return f"holds {entry} there"
        case OffsetGap(expected):
            return f"expects {expected} next"
        case BelowCommit(commit):
            return f"has committed up to {commit}"
        case DivergenceMismatch(announced, computed):
            return f"finds the logs part at {computed}, not at {offset(announced)}"
        case NotReady(reason) | Illegal(reason):
            return reason
        case StandbyLagging(lag):
            return f"the new node lags by {lag}"
        case LostDisk(who, acked):
            return f"{member(who)} had acknowledged {acked} and came back with less"
        case UnknownMember(who):
            return f"{member(who)} does not belong here"
        case SessionUnknown(session):
            return f"session {session} is unknown"
        case RequestGap(expected):
            return f"expects request {expected}"
        case ReplyForgotten(oldest):
            return f"remembers replies from request {oldest} on"
        case OffsetTrimmed(first):
            return f"the log starts at {first}"
        case CorruptEntry(entry):
            return f"its copy of {entry} is bad"
        case Overloaded(inflight):
            return f"has {inflight} in flight already"
    raise ValueError(f"no words for {refusal}")


def offset(at: int) -> str:
    return "its end" if at == OPEN_END else str(at)


# --- the narrator ----------------------------------------------------------------------------------


class Words(Narrator):
    """Collects the lines of one command.

    A line is `from → to  message`, and below it, indented, what the receiver does about it.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.width = 8
        # While true, what has been said in this command is not said again.
        self.terse = False
        # Messages that matter are told; polls and heartbeats only if asked for.
        self.everything = False
        self.texts: dict[int, str] = {}
        self._roles: dict[str, tuple[Role, int]] = {}
        self._commits: dict[str, int] = {}
        self._logs: dict[str, dict[int, Header]] = {}
        self._waiting: dict[str, str] = {}
        self._record: Shard | None = None

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def say(self, who: str, what: str) -> None:
        line = f"{who:{self.width}}  {what}"
        if not (self.terse and line in self.lines):
            self.lines.append(line.rstrip())

    def does(self, who: str, what: str) -> None:
        self.say("", f"{who} {what}")

    def name(self, text: str) -> None:
        self.texts[seal_body(text.encode())] = text

    # --- entries -----------------------------------------------------------------------------------

    def entry(self, header: Header) -> str:
        """`(2,3)x` for a client's entry, `(2,2)` for a control entry."""
        if header.kind is Kind.DATA:
            return f"{header.id}{self.texts[header.body_checksum]}"
        return f"{header.id}{'reg' if header.kind is Kind.REGISTER else ''}"

    def entries(self, headers: Iterable[Header]) -> str:
        return " ".join(self.entry(header) for header in headers)

    def log(self, log: Log, commit: int) -> str:
        """All entries, bad ones marked; the bar stands behind the last committed one."""
        parts = [f"{log.first}…"] if log.first else []
        for header in log.headers:
            if header.base == commit and (header.base > log.first or log.first):
                parts.append("|")
            mark = log.marks.get(header.base)
            unknown = header.kind is Kind.UNKNOWN
            shown = str(header.id) if unknown else self.entry(header)
            if unknown and header.count != 1:
                shown = f"[{header.base},{header.end if header.count else '?'})"
            parts.append(f"{shown}!{mark.name.lower()}" if mark else shown)
        if log.headers and commit >= log.end:
            parts.append("|")
        return " ".join(parts) or "-"

    # --- what observers see ------------------------------------------------------------------------

    def on_deliver(self, envelope: Envelope, lost: str) -> None:
        if isinstance(envelope.message, NOISE) and not self.everything:
            return
        if isinstance(envelope.message, Ack) and envelope.message.beat and not self.everything:
            return
        fate = f"  ✗ {envelope.dst} is {lost}" if lost else ""
        self.say(f"{envelope.src} → {envelope.dst}", self.message(envelope.message) + fate)

    def on_step(
        self, world: Any, node: str, replica: Replica, event: object, effects: Sequence[object]
    ) -> None:
        log = replica.log
        before = self._logs.get(node, {})
        for effect in effects:
            match effect:
                case TruncateLog(end):
                    gone = [header for base, header in before.items() if base >= end]
                    self.does(node, f"cuts its log at {end}, losing {self._dropped(gone)}")
                case ResetLog(first):
                    self.does(node, f"drops its log and starts over at {first}")
        role = (replica.role, replica.epoch)
        if role != self._roles.get(node):
            self._tell_role(node, replica, self._roles.get(node))
            self._roles[node] = role
        for effect in effects:
            match effect:
                case TrimLog(first):
                    self.does(node, f"trims its log to start at {first}")
                case RewriteEntry(entry):
                    self.does(node, f"repairs {self.entry(entry.header)}")
                case WriteEntries(entries) if replica.lead:
                    self.does(node, f"writes {self.entries(each.header for each in entries)}")
        commit = self._commits.get(node, 0)
        if replica.lead and replica.commit > commit:
            self.does(node, f"commits {self.entries(log.between(commit, replica.commit))}")
        self._commits[node] = replica.commit
        self._logs[node] = {header.base: header for header in log.headers}

    def _dropped(self, headers: Iterable[Header]) -> str:
        shown = [
            str(header.id) if header.kind is Kind.UNKNOWN else self.entry(header)
            for header in headers
        ]
        return " ".join(shown) or "nothing it could read"

    def _tell_role(self, node: str, replica: Replica, before: tuple[Role, int] | None) -> None:
        leader = member(replica.leader)
        match replica.role:
            case Role.LEADER if before and before[0] is Role.LEADER:
                self.does(node, f"leads on in epoch {replica.epoch}")
            case Role.LEADER:
                self.does(node, f"takes the lead of epoch {replica.epoch}")
            case Role.FOLLOWER:
                self.does(node, f"follows {leader} in epoch {replica.epoch}")
            case Role.STANDBY:
                self.does(node, f"stands by for {leader} in epoch {replica.epoch}")
            case Role.FENCED if before and before == (Role.LEADER, replica.epoch):
                self.does(node, "steps down")

    def on_coordinator(
        self,
        world: Any,
        name: str,
        coordinator: Coordinator,
        event: object,
        effects: Sequence[object],
    ) -> None:
        """Why an election waits, when that is more than that too few have answered."""
        waiting = coordinator.election.waiting if coordinator.election else ""
        if waiting != self._waiting.get(name, "") and waiting and "quorum" not in waiting:
            self.does(name, f"waits: {waiting}")
        self._waiting[name] = waiting

    def on_write(self, operator: str, version: int, shard: Shard) -> None:
        self.say(operator, f"writes v{version}: {shard_words(shard, self._record)}")
        self._record = shard

    def on_lost_race(self, operator: str, version: int) -> None:
        self.say(operator, f"comes too late to write v{version}")

    def on_answer(self, operator: str, answer: Accepted | Rejected) -> None:
        if isinstance(answer, Rejected):
            self.say(operator, f"refuses: {answer.reason}")

    def on_verdict(self, text: str) -> None:
        self.say("checker:", text)

    def on_crash(self, world: Any, name: str) -> None:
        self.say(name, "dies")

    # --- messages ----------------------------------------------------------------------------------

    def message(self, message: Message) -> str:
        match message:
            case Create():
                return "Create"
            case Created(incarnation):
                return "created" + (f" as incarnation {incarnation}" if incarnation > 1 else "")
            case Fence(epoch):
                return f"Fence epoch {epoch}"
            case FenceAnswer():
                return f"fenced at {message.epoch}: {fence_words(message)}"
            case BecomeLeader():
                return self._become_leader(message)
            case BecameLeader(epoch):
                return f"leads epoch {epoch}"
            case CannotServe(epoch, awaited):
                return f"cannot serve epoch {epoch}: nobody supplies what it lacks at {awaited}"
            case AddFollower(_, answer, standby):
                how = " as a standby" if standby else ""
                return f"AddFollower {member(answer.member)}{how}: {fence_words(answer)}"
            case FollowerAdded(_, who):
                return f"will feed {member(who)}"
            case Announce():
                return self._announce(message)
            case Entries(_, entries, commit):
                shown = self.entries(each.header for each in entries)
                return f"{shown}" + (f"; commit {commit}" if commit else "")
            case Ack(_, end, at):
                behind = f", has got up to {at}" if at != end else ""
                return f"acks [0,{end}){behind}" if end else "acks nothing yet"
            case Progress(_, at):
                return f"has got up to {at}, acks nothing"
            case Prepare(epoch, change):
                return f"Prepare epoch {epoch}: {change_words(change)}"
            case Prepared(_, covered):
                return "prepared, covered" if covered else "prepared, not covered yet"
            case Commit(_, change):
                return f"Commit: {change_words(change)}"
            case Committed():
                return "committed"
            case Abort(epoch, ensemble):
                return f"Abort epoch {epoch}: back to {members(ensemble)}"
            case Aborted(epoch):
                return f"aborted, leads epoch {epoch}"
            case SnapshotRequest():
                return "SnapshotRequest"
            case SnapshotOffer(_, snapshot):
                return f"offers snapshot {snapshot_words(snapshot)}"
            case InstallSnapshot(_, snapshot):
                return f"InstallSnapshot {snapshot_words(snapshot)}"
            case SnapshotInstalled(_, end):
                return f"installed [0,{end})"
            case PauseWrites(_, target):
                return f"PauseWrites until {member(target)} has caught up"
            case WritesPaused(_, target, caught_up):
                return f"paused; {member(target)} {'has caught up' if caught_up else 'lags'}"
            case Trim(_, first):
                return f"Trim below {first}"
            case Destroy():
                return "Destroy"
            case Destroyed(incarnation):
                return "destroyed" + (f" incarnation {incarnation}" if incarnation > 1 else "")
            case Refused(request, _, refusal):
                return f"refuses {request}: {refusal_words(refusal)}"
            case Fetch(_, _, start, end):
                return f"Fetch [{start},{end})"
            case Fetched(_, entries):
                return f"supplies {self.entries(each.header for each in entries)}"
        return self._client_message(message)

    def _become_leader(self, message: BecomeLeader) -> str:
        kept = f"keep up to {entry_at(message.kept.history, message.kept.end)}"
        if not message.kept.end:
            kept = "keep nothing"
        followers = ", ".join(
            f"{member(each.member)} {entry_at(each.history, each.end) if each.end else 'empty'}"
            for each in message.followers
        )
        return f"BecomeLeader epoch {message.epoch}: {kept}; followers {followers or 'none'}"

    def _announce(self, message: Announce) -> str:
        text = f"Announce epoch {message.epoch}, history {written(message.history)}"
        if message.cut != OPEN_END:
            text += f", common up to {message.cut}"
        if message.standby:
            text += ", stand by"
        if message.snapshot:
            text += f", install [{message.snapshot.first},{message.snapshot.end}) first"
        return text

    def _client_message(self, message: Message) -> str:
        match message:
            case Register():
                return "Register"
            case Registered(_, session):
                return f"session {session}"
            case Append(session, request, _, body):
                return f"Append {body.decode()} (session {session}, request {request})"
            case Appended(_, request, base):
                return f"appended at {base} (request {request})"
            case Read(_, start):
                return f"Read from {start}"
            case ReadResult(_, entries, commit):
                shown = self.entries(each.header for each in entries)
                return f"read {shown or 'nothing'}; commit {commit}"
            case ClientRefused(_, _, refusal):
                return f"refuses: {refusal_words(refusal)}"
            case Heartbeat(_, commit):
                return f"Heartbeat; commit {commit}"
            case StatusRequest():
                return "StatusRequest"
            case StatusReport(_, role, epoch):
                return f"is {role.lower()} at {epoch}"
        raise ValueError(f"no words for {message}")
