"""Who tells a transcript: one line for a message, and below it what its receiver does about it.

Whatever only keeps the shard going, heartbeats and status polls, is not told.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from scenarios.message_words import MessageWords
from scenarios.words import member, shard_words
from shardlog.protocol.coordination import Accepted, Rejected
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import (
    ResetLog,
    RewriteEntry,
    TrimLog,
    TruncateLog,
    WriteEntries,
)
from shardlog.protocol.entry import Header, Kind, Member
from shardlog.protocol.messages import (
    Ack,
    Envelope,
    FenceAnswer,
    Heartbeat,
    StatusReport,
    StatusRequest,
)
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.protocol.states import Role
from shardlog.sim.stage import Narrator

NOISE = (Heartbeat, StatusRequest, StatusReport)


class Narration(Narrator):
    """Collects the lines of one command.

    A line is `from → to  message`, and below it, indented, what the receiver does about it.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.width = 8
        # While true, what has been said in this command is not said again.
        self.terse = False
        self.words = MessageWords()
        self._roles: dict[str, tuple[Role, int]] = {}
        self._commits: dict[str, int] = {}
        self._logs: dict[str, dict[int, Header]] = {}
        self._waiting: dict[str, str] = {}
        self._record: Shard | None = None
        self._answers: dict[Member, FenceAnswer] = {}

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def say(self, who: str, what: str) -> None:
        line = f"{who:{self.width}}  {what}"
        if not (self.terse and line in self.lines):
            self.lines.append(line.rstrip())

    def does(self, who: str, what: str) -> None:
        self.say("", f"{who} {what}")

    def on_deliver(self, envelope: Envelope, lost: str) -> None:
        message = envelope.message
        if isinstance(message, NOISE) or (isinstance(message, Ack) and message.beat):
            return
        fate = f"  ✗ {envelope.dst} is {lost}" if lost else ""
        if isinstance(message, FenceAnswer):
            fate = (" (as before)" if self._answers.get(message.member) == message else "") + fate
            self._answers[message.member] = message
        self.say(f"{envelope.src} → {envelope.dst}", self.words.message(message) + fate)

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
                case TrimLog(first, _):
                    self.does(node, f"trims its log to start at {first}")
                case RewriteEntry(entry):
                    self.does(node, f"repairs {self.words.entry(entry.header)}")
                case WriteEntries(entries) if replica.lead:
                    self.does(node, f"writes {self.words.entries(each.header for each in entries)}")
        commit = self._commits.get(node, 0)
        if replica.lead and replica.commit > commit:
            self.does(node, f"commits {self.words.entries(log.between(commit, replica.commit))}")
        self._commits[node] = replica.commit
        self._logs[node] = {header.base: header for header in log.headers}

    def _dropped(self, headers: Iterable[Header]) -> str:
        shown = [
            str(header.id) if header.kind is Kind.UNKNOWN else self.words.entry(header)
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
        found = coordinator.election.waiting if coordinator.election else None
        waiting = str(found) if found and "quorum" not in found.reason else ""
        if waiting and waiting != self._waiting.get(name, ""):
            self.does(name, f"waits: {waiting}")
        self._waiting[name] = waiting

    def on_write(self, operator: str, version: int, shard: Shard | None) -> None:
        words = shard_words(shard, self._record) if shard else "no record"
        self.say(operator, f"writes v{version}: {words}")
        self._record = shard

    def on_restore(self, world: Any, shard: Shard) -> None:
        self.say("backup", f"restored as v{world.version}: {shard_words(shard)}")
        self._record = shard

    def on_lost_race(self, operator: str, version: int) -> None:
        self.say(operator, f"comes too late to write v{version}")

    def on_answer(self, operator: str, answer: Accepted | Rejected) -> None:
        if isinstance(answer, Rejected):
            self.say(operator, f"refuses: {answer.reason}")

    def on_verdict(self, text: str) -> None:
        self.say("checker:", text)

    def on_restart(self, world: Any, name: str) -> None:
        """A replica comes back Fenced, with what its disk held."""
        if name in world.nodes:
            replica = world.nodes[name].replica
            self._roles[name] = (replica.role, replica.epoch)
            self._commits[name] = replica.commit
            self._logs[name] = {header.base: header for header in replica.log.headers}

    def on_crash(self, world: Any, name: str) -> None:
        self.say(name, "dies")
