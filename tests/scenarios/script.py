"""Scenario files: a header, then commands with what was recorded below each.

`play(text)` performs the commands of a file and returns the file as it should read.  Everything but
the recorded output, that is header, comments, blank lines and commands, is kept as it is.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from scenarios.deaths import Play, table
from scenarios.narration import Narration
from scenarios.seed_rules import broken
from scenarios.words import member, shard_words
from shardlog.protocol.coordination import (
    AbortChange,
    AcceptLoss,
    Command,
    Commanded,
    Contract,
    CoordinatorLimits,
    CreateShard,
    DeleteShard,
    Expand,
    Promote,
    Swap,
    TrimShard,
)
from shardlog.protocol.effects import Limits
from shardlog.protocol.entry import EntryId
from shardlog.protocol.history import written
from shardlog.protocol.messages import Envelope
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.states import Role
from shardlog.sim.checkers import all_checkers
from shardlog.sim.restores import RestoreChecker
from shardlog.sim.stage import TICK_MS, Link, Stage
from shardlog.sim.stage_actors import StageClient, StageNode

EVERYWHERE = (Link("*", "*"),)
RUN_UNTIL_MS_MAX = 20_000
BRIEF = re.compile(
    r"writes v\d+|restored|takes the lead|steps down|losing|commits|waits:|refuses:|too late|"
    r"^checker|dies$"
)
ALWAYS_LOOKING = CoordinatorLimits(rest_ms=CoordinatorLimits().status_ms)
"""On a stage there are no drivers that would wake a shard up, so none of them rests."""


@dataclass(frozen=True)
class Scenario:
    """A file, taken apart.  `mutants` are the rules that are taken away while it plays."""

    title: str
    ids: str
    mutants: tuple[str, ...]
    limits: dict[str, int]
    lines: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Scenario":
        lines = text.splitlines()
        fields_found = {}
        for line in lines:
            if line.startswith((">", "#")):
                break
            found = re.fullmatch(r"(ids|mutant|limits): (.+)", line)
            if found:
                fields_found[found[1]] = found[2]
        limits = dict(re.findall(r"(\w+)=(\d+)", fields_found.get("limits", "")))
        return cls(
            lines[0],
            fields_found["ids"],
            tuple(fields_found.get("mutant", "").split()),
            {name: int(value) for name, value in limits.items()},
            tuple(lines),
        )


@dataclass(frozen=True)
class Played:
    """The transcript as it should read, and the checkers' verdicts."""

    text: str
    verdicts: tuple[str, ...]


def play(text: str) -> Played:
    scenario = Scenario.parse(text)
    director = Director(scenario.limits)
    out: list[str] = []
    recorded = False
    with broken(scenario.mutants):
        for number, line in enumerate(scenario.lines, 1):
            if line.startswith("> "):
                try:
                    told = director.perform(line[2:])
                except (ValueError, KeyError, IndexError) as error:
                    raise ValueError(f"line {number}: {line}: {error!r}") from error
                out += [line, *told]
                recorded = True
            elif not line or line.startswith("#"):
                out.append(line)
                recorded = False
            elif not recorded:
                out.append(line)
        verdicts = (*director.earlier_verdicts, *director.judge())
    return Played("\n".join(out) + "\n", verdicts)


Bounds = TypeVar("Bounds", Limits, CoordinatorLimits)


def limited(defaults: Bounds, chosen: dict[str, int]) -> Bounds:
    """The defaults with those of the chosen bounds that are theirs."""
    known = {field.name for field in fields(defaults)}
    return replace(defaults, **{name: value for name, value in chosen.items() if name in known})


class Director:
    """Turns a command line into calls on the stage."""

    def __init__(self, limits: dict[str, int]) -> None:
        unknown = limits.keys() - {f.name for f in (*fields(Limits), *fields(CoordinatorLimits))}
        if unknown:
            raise ValueError(f"no such limit: {', '.join(sorted(unknown))}")
        self.limits = limits
        self.earlier_verdicts: list[str] = []
        self.set_up()

    def set_up(self) -> None:
        """An empty stage."""
        self.told = Narration()
        self.stage = Stage(
            self.told,
            [each for each in all_checkers() if not isinstance(each, RestoreChecker)],
            limited(Limits(), self.limits),
            limited(ALWAYS_LOOKING, self.limits),
        )
        self.commands = 0

    def new_stage(self) -> None:
        """Another story in the same file."""
        self.earlier_verdicts += self.judge()
        self.set_up()

    def perform(self, line: str) -> list[str]:
        for pattern, method in COMMANDS:
            found = re.fullmatch(pattern, line.strip())
            if found:
                told = method(self, *found.groups(default=""))
                return [*self.told.take(), *(told or ())]
        raise ValueError("no such command")

    # --- bringing up -----------------------------------------------------------------------------

    def create(self, nodes: str, replication: str, fencing: str) -> None:
        """Up to the first election's fences, which stay in flight."""
        for name in nodes.split():
            self.stage.node(name)
        quorum = QuorumPolicy(
            int(replication) if replication else None, int(fencing) if fencing else None
        )
        self._command("op1", CreateShard(tuple(nodes.split()), quorum))
        self.stage.deliver(EVERYWHERE)
        if self.stage.version:
            self._advance(TICK_MS)

    def start(self, nodes: str, replication: str, fencing: str, clients: str) -> list[str]:
        """A shard that works, with clients that have sessions: told only by its state."""
        self.create(nodes, replication, fencing)
        self._run(500)
        for client in (clients or "c1").split():
            if self.stage.record and self.stage.record.leader:
                self.stage.client(client).register(self.stage.record.leader.node)
            self._run(500)
        self.told.take()
        replicas = [node.replica for node in self.stage.nodes.values()]
        leader = next((each for each in replicas if each.lead), None)
        if leader is None or any(each.log.headers != leader.log.headers for each in replicas):
            return self.status()
        log = self.told.words.log(leader.log, leader.commit)
        return [f"{leader.node} leads epoch {leader.epoch}; all hold {log}"]

    def _command(self, operator: str, command: Command) -> None:
        self.commands += 1
        self.stage.operator(operator).step(Commanded(self.commands, command))
        self.stage.settle()

    def _advance(self, ms: int) -> None:
        self.stage.tick(ms)

    def _run(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.stage.tick(TICK_MS)
            self.stage.deliver(EVERYWHERE)

    # --- time and messages -----------------------------------------------------------------------

    def tick(self, ms: str) -> None:
        self._advance(int(ms))

    def run(self, ms: str, briefly: str) -> None:
        self.told.terse = True
        self._run(int(ms))
        self.told.terse = False
        self._shorten(briefly)

    def run_until(self, text: str, briefly: str) -> None:
        """Until a line with this text is told; what is in flight then stays in flight."""
        self.told.terse = True
        give_up_ms = self.stage.now_ms + RUN_UNTIL_MS_MAX
        while not any(text in line for line in self.told.lines):
            if not self.stage.deliver_next(EVERYWHERE):
                self.stage.tick(TICK_MS)
            if self.stage.now_ms > give_up_ms:
                raise ValueError("that never happens")
        self.told.terse = False
        self._shorten(briefly)

    def deliver(self, links: str, kind: str, briefly: str) -> list[str]:
        count = self.stage.deliver(self._links(links), kind)
        self._shorten(briefly)
        return [] if count else ["nothing"]

    def _shorten(self, briefly: str) -> None:
        """Keep only who writes the metadata, who leads, what is lost, and what checkers find."""
        if briefly:
            self.told.lines = [line for line in self.told.lines if BRIEF.search(line)]

    def drop(self, links: str, kind: str) -> list[str]:
        lost = self.stage.drop(self._links(links), kind)
        return self._list(lost)

    def flying(self) -> list[str]:
        return self._list(self.stage.flights)

    def _list(self, envelopes: Sequence[Envelope]) -> list[str]:
        for envelope in envelopes:
            self.told.on_deliver(envelope, "")
        return self.told.take() or ["nothing"]

    def hold(self, links: str) -> None:
        self.stage.held += self._links(links)

    def release(self, links: str) -> None:
        gone = self._links(links) if links else tuple(self.stage.held)
        self.stage.held = [link for link in self.stage.held if link not in gone]
        self.stage.spread_news()
        self.stage.settle()

    def cut(self, links: str, kind: str) -> None:
        """All that is sent there is lost, or all of one kind."""
        self.stage.cuts += [replace(link, kind=kind) for link in self._links(links)]
        self.stage.drop(self._links(links), kind)

    def mend(self, links: str) -> None:
        gone = self._links(links) if links else tuple(self.stage.cuts)
        cuts = self.stage.cuts
        self.stage.cuts = [each for each in cuts if replace(each, kind="") not in gone and links]

    def _links(self, text: str) -> tuple[Link, ...]:
        """`A->B`, both ways `A<->B`, several with blanks between; nothing means all."""
        links: list[Link] = []
        for part in text.split():
            src, dst = part.replace("<->", "->").split("->")
            links.append(Link(src, dst))
            if "<->" in part:
                links.append(Link(dst, src))
        return tuple(links) or EVERYWHERE

    # --- people and clients ----------------------------------------------------------------------

    def elect(self, operator: str, preferred: str) -> None:
        self.stage.operator(operator).elect(preferred or None)
        self.stage.settle()

    def swap(self, old: str, new: str, operator: str) -> None:
        self.stage.node(new)
        self._command(operator or "op1", Swap(old, new))

    def expand(self, new: str, operator: str) -> None:
        self.stage.node(new)
        self._command(operator or "op1", Expand(new))

    def contract(self, old: str, operator: str) -> None:
        self._command(operator or "op1", Contract(old))

    def promote(self, node: str, operator: str) -> None:
        self._command(operator or "op1", Promote(node))

    def trim(self, first: str, operator: str) -> None:
        self._command(operator or "op1", TrimShard(int(first)))

    def accept_loss(self, epoch: str, offset: str, operator: str) -> None:
        self._command(operator or "op1", AcceptLoss(EntryId(int(epoch), int(offset))))

    def delete(self, operator: str) -> None:
        self._command(operator or "op1", DeleteShard())

    def abort(self, operator: str) -> None:
        self._command(operator or "op1", AbortChange())

    def append(self, text: str, node: str, client: str) -> None:
        self.told.words.name(text)
        if text in self._client(client).requests:
            raise ValueError("appended before: retry it")
        self._client(client).append(text, node)

    def retry(self, text: str, node: str, client: str) -> None:
        self._client(client).requests[text]
        self._client(client).append(text, node)

    def register(self, client: str, node: str) -> None:
        self.stage.client(client).register(node)

    def read(self, start: str, node: str, client: str) -> None:
        self._client(client).read(int(start), node)

    def _client(self, name: str) -> StageClient:
        return self.stage.client(name or "c1")

    # --- faults ----------------------------------------------------------------------------------

    def boot(self, name: str) -> None:
        """Another operator."""
        self.stage.operator(name)

    def crash(self, names: str) -> None:
        for name in names.split():
            self.stage.crash(name)
        self.told.take()

    def crash_after(self, name: str, kind: str, count: str) -> None:
        """Later: right after its n-th message of this kind, or its n-th metadata write."""
        (self.stage.node if name[0].isupper() else self.stage.operator)(name)
        self.stage.doom(name, kind, int(count or 1))

    def drain(self, names: str) -> None:
        """These nodes are about to stop, and say so when they are asked how they are."""
        for name in names.split():
            self.stage.nodes[name].replica.draining = True

    def restart(self, names: str) -> None:
        for name in names.split():
            self.stage.restart(name)

    def corrupt(self, node: str, offset: str) -> None:
        self.stage.damage(node, int(offset), header_too=False)

    def fault(self, node: str, offset: str) -> None:
        self.stage.damage(node, int(offset), header_too=True)

    def wipe(self, node: str) -> None:
        """The process dies, its volume is replaced by an empty one, and it comes back."""
        self.stage.crash(node)
        self.stage.wipe(node)
        self.told.take()
        self.stage.restart(node)

    def kill_at_each_step(self, victim: str, command: str, back_ms: str) -> list[str]:
        """The command once for every message and write of `victim`, which dies right after it."""
        steps = Play(Director(self.limits), command).steps_of(victim)
        rows: list[tuple[str, ...]] = [
            (f"{victim} dies after", "epoch", "leader", "ensemble", "left over", "a client reads")
        ]
        for kind, count in steps:
            director = Director(self.limits)
            rows.append(Play(director, command).without(victim, kind, count, int(back_ms or 0)))
            self.earlier_verdicts += director.judge()
        return table(rows)

    def restore(self, version: str) -> None:
        """The metadata comes back from a backup that was taken when this version stood."""
        self.stage.restore(int(version))

    # --- looking ---------------------------------------------------------------------------------

    def status(self) -> list[str]:
        """A table of the nodes; what stands in the metadata; what operators wait for."""
        rows: list[tuple[str, ...]] = [("", "role", "epoch", "commit", "log", "history")]
        rows += [self._row(node) for node in self.stage.nodes.values()]
        lines = table(rows)
        lines += self.metadata()
        for operator in self.stage.operators.values():
            election = operator.coordinator.election
            if operator.up and election and election.waiting:
                lines.append(f"{operator.name} waits: {election.waiting}")
        return lines

    def _row(self, node: StageNode) -> tuple[str, ...]:
        replica = node.replica
        role = replica.role.lower() if node.up else "down"
        if replica.role is Role.NOT_MEMBER:
            return node.name, "no replica" if node.up else "down", "", "", "", ""
        if replica.syncing:
            role += ", syncing"
        log = replica.log
        return (
            member(replica.member),
            role,
            str(replica.epoch),
            str(replica.commit),
            self.told.words.log(log, replica.commit),
            written(replica.history),
        )

    def metadata(self) -> list[str]:
        record = self.stage.record
        if record is None:
            return []
        return [f"metadata v{self.stage.version}: {shard_words(record)}"]

    def check(self) -> list[str]:
        verdicts = [*self.earlier_verdicts, *self.judge()]
        return [f"checker: {verdict}" for verdict in verdicts] or ["checker: holds"]

    def judge(self) -> list[str]:
        """Whatever the checkers found so far, and what clients saw as a whole."""
        self.stage.watch("on_end")
        self.told.take()
        return self.stage.verdicts


NODES = r"([A-Z]\w*(?: [A-Z]\w*)*)(?: replication (\d+) fencing (\d+))?"
LINK = r"(?:\w+|\*)<?->(?:\w+|\*)"
LINKS = f"({LINK}(?: {LINK})*)"
BY = r"(?: by (\w+))?"

COMMANDS: tuple[tuple[str, Callable[..., list[str] | None]], ...] = (
    (f"create {NODES}", Director.create),
    (f"start {NODES}(?: with ((?:\\w+ ?)+))?", Director.start),
    (r"elect (\w+)(?: preferring (\w+))?", Director.elect),
    (f"deliver(?: {LINKS})?(?: ([A-Z]\\w+))?( briefly)?", Director.deliver),
    (f"drop(?: {LINKS})?(?: ([A-Z]\\w+))?", Director.drop),
    (f"hold {LINKS}", Director.hold),
    (f"release(?: {LINKS})?", Director.release),
    (f"cut {LINKS}(?: ([A-Z]\\w+))?", Director.cut),
    (f"mend(?: {LINKS})?", Director.mend),
    (r"in flight", Director.flying),
    (r"tick (\d+)", Director.tick),
    (r"run (\d+)( briefly)?", Director.run),
    (r'run until "(.+)"( briefly)?', Director.run_until),
    (f"append (\\w+) at (\\w+){BY}", Director.append),
    (f"retry (\\w+) at (\\w+){BY}", Director.retry),
    (r"register (\w+) at (\w+)", Director.register),
    (f"read from (\\d+) at (\\w+){BY}", Director.read),
    (f"swap (\\w+) for (\\w+){BY}", Director.swap),
    (f"expand (\\w+){BY}", Director.expand),
    (f"contract (\\w+){BY}", Director.contract),
    (f"promote (\\w+){BY}", Director.promote),
    (f"trim (\\d+){BY}", Director.trim),
    (f"accept loss of \\((\\d+),(\\d+)\\){BY}", Director.accept_loss),
    (f"abort{BY}", Director.abort),
    (f"delete{BY}", Director.delete),
    (r"boot (\w+)", Director.boot),
    (r"crash (\w+) after (\w+)(?: (\d+))?", Director.crash_after),
    (r"crash (\w+(?: \w+)*)", Director.crash),
    (r"restart ((?:\w+ ?)+)", Director.restart),
    (r"drain ((?:\w+ ?)+)", Director.drain),
    (r"corrupt (\w+) \(\d+,(\d+)\)", Director.corrupt),
    (r"fault (\w+) \(\d+,(\d+)\)", Director.fault),
    (r"wipe (\w+)", Director.wipe),
    (r"restore v(\d+)", Director.restore),
    (r"new stage", Director.new_stage),
    (
        r"kill (\w+) at each step of: (.+?)(?:, back after (\d+))?",
        Director.kill_at_each_step,
    ),
    (r"status", Director.status),
    (r"metadata", Director.metadata),
    (r"check", Director.check),
)
