"""The words of a transcript for entries, logs and messages."""

from collections.abc import Iterable

from scenarios.words import (
    change_words,
    entry_at,
    fence_words,
    member,
    members,
    refusal_words,
    session_word,
    snapshot_words,
)
from shardlog.protocol.entry import Header, Kind
from shardlog.protocol.history import OPEN_END, written
from shardlog.protocol.log import Log
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
    Fence,
    FenceAnswer,
    Fetch,
    Fetched,
    FollowerAdded,
    InstallSnapshot,
    Message,
    PauseWrites,
    Prepare,
    Prepared,
    Progress,
    Read,
    ReadResult,
    Refused,
    Register,
    Registered,
    SnapshotInstalled,
    SnapshotOffer,
    SnapshotRequest,
    Trim,
    WritesPaused,
)
from shardlog.sim.seal import seal_body


class MessageWords:
    """Knows clients' entries by what they appended, which their headers do not tell."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def name(self, text: str) -> None:
        self.texts[seal_body(text.encode())] = text

    def entry(self, header: Header) -> str:
        """`(2,3)x` for a client's entry, `(2,2)` for a control entry."""
        if header.kind is Kind.DATA:
            return f"{header.id}{self.texts[header.body_checksum]}"
        if header.kind is Kind.LOST:
            return f"[{header.base},{header.end})lost"
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
        if log.headers and commit >= log.end and "|" not in parts:
            parts.append("|")
        return " ".join(parts) or "-"

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
            case Fetched(_, entries, _):
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
                return f"session {session_word(session)}"
            case Append(session, request, _, body):
                text, name = bytes(body).decode(), session_word(session)
                return f"Append {text} (session {name}, request {request})"
            case Appended(_, request, base):
                return f"appended at {base} (request {request})"
            case Read(_, start):
                return f"Read from {start}"
            case ReadResult(_, entries, commit):
                shown = self.entries(each.header for each in entries)
                return f"read {shown or 'nothing'}; commit {commit}"
            case ClientRefused(_, _, refusal):
                return f"refuses: {refusal_words(refusal)}"
        raise ValueError(f"no words for {message}")
