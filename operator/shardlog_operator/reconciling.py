"""One reconcile per Shard, called whenever anything about it may have changed.

It remembers nothing that matters: what is wanted stands in the Shard, what is so in the record, and
the plan follows from both.  So it may be called at any time, by any number of operators, and be cut
off anywhere.  Its order is: the finalizer before the shard is made, the command, the Service, and
last the status, which says what was found.

A reconcile that fails is tried again later, less and less often; that some Shard cannot be handled
keeps nobody from handling the others.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardlog.coordinator.commanding import Commander
from shardlog.coordinator.scaling import count_replicas
from shardlog.metadata.failures import NewerRecord, Unavailable
from shardlog.metadata.records import shard_key
from shardlog.process.logs import Logger
from shardlog.protocol.coordination import Command, Rejected
from shardlog.protocol.shard import Shard, Status
from shardlog_operator import ailing, events
from shardlog_operator.deleting import ending
from shardlog_operator.events import Told
from shardlog_operator.kube import (
    ApiFailure,
    ApiUnavailable,
    Conflict,
    Forbidden,
    Kube,
    NotFound,
    Refused,
)
from shardlog_operator.looking import LOOK_MIN_S, NEVER_S, Heard, Looking
from shardlog_operator.operations import hosts
from shardlog_operator.planning import Plan, Situation, Waiting, plan
from shardlog_operator.publishing import EventPoster, Publisher, written
from shardlog_operator.settings import OperatorSettings
from shardlog_operator.spec import FINALIZER, ShardSpec, shard_spec
from shardlog_operator.status import Observed, Trouble, build, is_worth_writing
from shardlog_operator.watched import Watched

Json = Any
CONFLICT_S = 0.2
BACKOFF_MAX_S = 30.0
RETRY_MAX_S = 60.0
METADATA_PATIENCE_S = 5.0
AILING_S = 5.0
"""What a coordinator knows of damage changes without a word to us."""


@dataclass(slots=True)
class Known:
    """Of one Shard, between two reconciles: when it is lost nothing but a moment is."""

    failures: int = 0
    # The record that events were told of, if it was looked for.
    looked: bool = False
    told: Shard | None = None
    heard: Heard = field(default_factory=Heard)
    positions_s: float = NEVER_S
    stuck: Waiting | None = None
    foreign: str | None = None
    kept_as_created: int = 0
    tried: Command | None = None
    tries: int = 0
    tried_s: float = NEVER_S
    refused: str = ""


@dataclass(slots=True)
class Census:
    """Counted over all records, once for each revision of the store."""

    revision: int = -1
    hosting: Mapping[str, int] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()


class Reconciler:
    def __init__(
        self,
        settings: OperatorSettings,
        kube: Kube,
        watched: Watched,
        commander: Commander,
        looking: Looking,
        poster: EventPoster,
        publisher: Publisher,
        clock_s: Callable[[], float],
        log: Logger,
    ) -> None:
        self.settings = settings
        self.kube = kube
        self.watched = watched
        self.commander = commander
        self.host = commander.host
        self.looking = looking
        self.poster = poster
        self.publisher = publisher
        self.clock_s = clock_s
        self.log = log
        # Shards whose reconcile ended in an exception nobody expected, and which.
        self.broken: dict[str, Exception] = {}
        self._known: dict[str, Known] = {}
        self._census = Census()
        self._begun_s = clock_s()

    # --- looking ---------------------------------------------------------------------------------

    def situation(self, name: str) -> Situation | None:
        body = self.watched.shards.get(name)
        return self._situation(shard_spec(body)) if body is not None else None

    def _situation(self, spec: ShardSpec) -> Situation:
        census, host = self._census, self.host
        if census.revision != host.revision or not host.revision:
            census.revision = host.revision
            census.hosting = count_replicas(host.shards.values())
            census.hosts = frozenset(node for each in host.shards.values() for node in hosts(each))
        places = self.watched.nodes.places(
            census.hosts, self.watched.drained(), self.settings.node_grace_s
        )
        waiting = host.waiting(spec.name)
        awaited = waiting.entry if waiting is not None else None
        record, heard = host.shards.get(spec.name), host.hears_leader(spec.name)
        return Situation(spec, record, places, census.hosting, awaited, heard)

    def node_heard(self) -> None:
        """A node came, went or changed: replicas are asked anew."""
        for known in self._known.values():
            known.heard.forget()
            known.tries = 0

    # --- one Shard -------------------------------------------------------------------------------

    async def reconcile(self, name: str) -> float | None:
        """Seconds until it is to be looked at again though nothing is heard; None: it is gone."""
        known = self._known.setdefault(name, Known())
        try:
            again_s = await self._reconcile(name, known)
        except (Conflict, NotFound):
            return CONFLICT_S
        except (ApiFailure, Unavailable) as failure:
            known.failures += 1
            usual = isinstance(failure, ApiUnavailable | Unavailable)
            (self.log.info if usual else self.log.error)("waits", shard=name, why=str(failure))
            return min(BACKOFF_MAX_S, 2.0 ** min(known.failures - 2, 10)) * _jitter()
        except Exception as failure:
            self.broken[name] = failure
            self.log.exception("reconcile failed", shard=name)
            return BACKOFF_MAX_S
        known.failures = 0
        self.broken.pop(name, None)
        if again_s is None:
            self._known.pop(name, None)
        return again_s

    async def _reconcile(self, name: str, known: Known) -> float | None:
        body = self.watched.shards.get(name)
        if body is None:
            return await self._look_after_orphan(name, known)
        spec = shard_spec(body)
        if spec.deleting and not spec.finalized:
            return None
        if not spec.finalized:
            self._tell_adopted(body)
            spec = shard_spec(body := await self._change_finalizers(body, add=True))
        if not self.host.begun.is_set():
            return await self._wait_for_metadata(body, spec, known)
        trouble = self._trouble(name)
        if spec.deleting:
            return await self._end(body, spec, known, trouble)
        trouble = trouble or await self._missing(body)
        self._tell_changes(body, self._own(name), known, trouble)
        found = Plan()
        if trouble is None:
            found = await self._carry_out(body, plan(self._situation(spec)), known)
        record = self._own(name)
        self._tell_changes(body, record, known, trouble)
        self._tell_stuck(body, found.waiting, known)
        self._tell_kept(body, spec, record, known)
        leader = record.leader.node if record and record.leader else None
        if record is not None or trouble is None:
            # Whoever led it when the record could be read leads on, for all we know.
            await self._publish(body, spec, leader, known)
        await self.looking.ask(record, known.heard)
        seen = self.looking.observed(spec, record, found, trouble, known.heard)
        if self._is_news(body, seen) and await self.looking.ask(record, known.heard, at_once=True):
            # What was heard a while ago is no reason to write: another operator may know better.
            seen = self.looking.observed(spec, record, found, trouble, known.heard)
        self._tell_ailments(body, seen, known.heard)
        await self._write_status(body, seen, known)
        return self._again_s(seen, found, known)

    def _own(self, name: str) -> Shard | None:
        """The record, unless it is what an earlier Shard of this name has left to be destroyed."""
        record = self.host.shards.get(name)
        return None if record is not None and record.status is Status.DELETING else record

    async def _look_after_orphan(self, name: str, known: Known) -> float | None:
        """A record whose Shard is gone: it is served on, and the gates wait for it too."""
        record = self.host.shards.get(name)
        self.publisher.forget(name)
        if record is None:
            self.looking.forget(name)
            return None
        spec = ShardSpec(name, "", 0, replicas=len(record.ensemble))
        await self.looking.ask(record, known.heard)
        seen = self.looking.observed(spec, record, Plan(), None, known.heard)
        return self._again_s(seen, Plan(), known)

    async def _wait_for_metadata(self, body: Json, spec: ShardSpec, known: Known) -> float:
        waited_s = self.clock_s() - self._begun_s
        if waited_s >= METADATA_PATIENCE_S:
            told = "the metadata store has not answered yet: shards serve, nothing else is done"
            trouble = Trouble("MetadataUnavailable", told)
            await self._write_status(body, Observed(spec, None, Plan(), trouble=trouble), known)
        return LOOK_MIN_S * _jitter()

    def _trouble(self, name: str) -> Trouble | None:
        unreadable, stopped = self.host.unreadable.get(name), self.host.stopped.get(name)
        if isinstance(unreadable, NewerRecord):
            return Trouble("NewerRecord", f"{unreadable}; this operator leaves it alone")
        if unreadable is not None:
            return Trouble("BadRecord", str(unreadable))
        return Trouble("Stopped", str(stopped)) if stopped is not None else None

    async def _missing(self, body: Json) -> Trouble | None:
        """A shard that served once and has no record: its metadata was lost, or is from before.

        Made anew it might begin without records that its nodes hold, so a person has to decide.
        """
        name, status = body["metadata"]["name"], body.get("status") or {}
        if name in self.host.shards or not status.get("epoch"):
            return None
        if await self.host.store.get(shard_key(name)) is not None:
            return None
        nodes = ", ".join(each["node"] for each in status.get("ensemble", ()))
        told = (
            f"it was in epoch {status['epoch']} on {nodes or 'nodes not known'}, and the metadata"
            " has no record of it: restore a later backup of etcd; or, to give up what these nodes"
            " hold, delete the Shard and create it again"
        )
        return Trouble("RecordMissing", told)

    # --- deciding --------------------------------------------------------------------------------

    async def _carry_out(self, body: Json, decided: Plan, known: Known) -> Plan:
        """The plan, or what is waited for if its command is refused or was asked a moment ago."""
        if decided.command is None:
            known.tried, known.tries = None, 0
            return decided
        repeated = decided.command == known.tried
        if not repeated:
            known.tried, known.tries, known.refused = decided.command, 0, ""
        wait_s = min(RETRY_MAX_S, 2.0 ** (known.tries - 1)) if known.tries else 0.0
        left_s = known.tried_s + wait_s - self.clock_s()
        if left_s > 0:
            told = f"{decided.message}; asked {known.tries} times"
            told = f"{told}: {known.refused}" if known.refused else told
            return Plan(waiting=Waiting(decided.reason, told), again_s=left_s)
        known.tries += 1
        known.tried_s = self.clock_s()
        answer = await self.commander.command(body["metadata"]["name"], decided.command)
        if isinstance(answer, Rejected):
            if answer.reason != known.refused:
                told = f"{decided.message}; refused: {answer.reason}"
                self.poster.tell(body, Told("Refused", told, warning=True))
            known.refused = answer.reason
            waiting = Waiting("Refused", f"{decided.message}; refused: {answer.reason}")
            return Plan(waiting=waiting, again_s=LOOK_MIN_S)
        if known.tries == 1:
            self.poster.tell(body, Told(decided.reason, decided.message))
        return Plan(waiting=Waiting(decided.reason, decided.message), again_s=LOOK_MIN_S)

    def _tell_adopted(self, body: Json) -> None:
        """The finalizer comes before the record: who finds both the other way round adopts."""
        record = self.host.shards.get(body["metadata"]["name"])
        if record is not None and record.status is not Status.DELETING:
            nodes = ", ".join(member.node for member in record.ensemble)
            self.poster.tell(body, Told("Adopted", f"the shard was there already, on {nodes}"))

    def _tell_changes(
        self, body: Json, record: Shard | None, known: Known, trouble: Trouble | None
    ) -> None:
        """The first look tells nothing; a shard that we create may be led at the next one."""
        if record is None and trouble is not None:
            return  # it is there, for all we know, and goes on from what it was
        for told in events.changes(known.told, record) if known.looked else ():
            self.poster.tell(body, told)
        known.looked, known.told = True, record

    def _tell_stuck(self, body: Json, waiting: Waiting | None, known: Known) -> None:
        stuck = waiting if waiting is not None and waiting.stuck else None
        if stuck is not None and stuck != known.stuck:
            self.poster.tell(body, Told(stuck.reason, stuck.message, warning=True))
        elif stuck is None and known.stuck is not None:
            self.poster.tell(body, Told("GoesOn", f"no longer so: {known.stuck.message}"))
        known.stuck = stuck

    def _tell_ailments(self, body: Json, seen: Observed, heard: Heard) -> None:
        if seen.trouble is None:
            told, heard.ailments = ailing.news(seen.record, heard.ailments, seen.ailments)
            for each in told:
                self.poster.tell(body, each)

    def _tell_kept(self, body: Json, spec: ShardSpec, record: Shard | None, known: Known) -> None:
        """Once for each generation: a shard that was retained is taken up as it was made."""
        if record is None or known.kept_as_created == spec.generation:
            return
        differs = {
            "quorum": record.quorum != spec.quorum,
            "durability": record.upkeep.relaxed != spec.upkeep.relaxed,
        }
        fields = [field for field, is_so in differs.items() if is_so]
        if fields:
            known.kept_as_created = spec.generation
            told = f"the shard was there before, and keeps its own {' and '.join(fields)}"
            self.poster.tell(body, Told("KeptAsCreated", told, warning=True))

    # --- ending ----------------------------------------------------------------------------------

    async def _end(
        self, body: Json, spec: ShardSpec, known: Known, trouble: Trouble | None
    ) -> float | None:
        record = self.host.shards.get(spec.name)
        end = ending(spec, record, self._situation(spec).places)
        retained = end.done and end.reason == "Retained"
        if trouble is not None and not retained and spec.deletion != "Retain":
            await self._write_status(body, Observed(spec, record, Plan(), trouble=trouble), known)
            return LOOK_MIN_S
        if end.done or trouble is not None:
            if trouble is not None:
                self.poster.tell(body, Told("Retained", "its record is left as it is"))
            else:
                self.poster.tell(body, Told(end.reason, end.message))
            await self.publisher.withdraw(spec)
            await self._change_finalizers(body, add=False)
            return LOOK_MIN_S
        if end.command is not None:
            wanted = Plan(end.command, end.reason, end.message)
            decided = await self._carry_out(body, wanted, known)
        else:
            decided = Plan(waiting=end.waiting)
        self._tell_stuck(body, decided.waiting, known)
        record = self.host.shards.get(spec.name)
        await self._write_status(body, Observed(spec, record, decided), known)
        return LOOK_MIN_S

    async def _change_finalizers(self, body: Json, *, add: bool) -> Json:
        meta = body["metadata"]
        kept = [each for each in meta.get("finalizers") or () if each != FINALIZER]
        change = {
            "metadata": {
                "finalizers": [*kept, FINALIZER] if add else kept,
                "resourceVersion": meta.get("resourceVersion"),
            }
        }
        try:
            written_body = await self.kube.patch(self.kube.shard(meta["name"]), change)
        except NotFound:
            self.watched.shard("DELETED", body)
            raise
        self.watched.wrote_shard(written_body)
        return written_body

    # --- telling ---------------------------------------------------------------------------------

    async def _publish(self, body: Json, spec: ShardSpec, leader: str | None, known: Known) -> None:
        """What the API server does not take of this keeps nobody from the rest."""
        reason = "NameTaken"
        try:
            foreign = await self.publisher.publish(spec, self.watched.nodes.leader_pod(leader))
        except (Forbidden, Refused) as failure:
            reason, foreign = "NotPublished", str(failure)
        if foreign is not None and foreign != known.foreign:
            told = f"{foreign}: clients find the shard through the directory only"
            self.poster.tell(body, Told(reason, told, warning=True))
        known.foreign = foreign

    def _is_news(self, body: Json, seen: Observed) -> bool:
        before = body.get("status") or {}
        return is_worth_writing(before, build(seen, before, ""), positions_due=False)

    async def _write_status(self, body: Json, seen: Observed, known: Known) -> None:
        before = body.get("status") or {}
        now_s = self.clock_s()
        due = now_s - known.positions_s >= self.settings.positions_s
        status = build(seen, before, written(time.time()))
        if not is_worth_writing(before, status, due):
            return
        path = self.kube.shard(seen.spec.name, "status")
        try:
            self.watched.wrote_shard(await self.kube.replace(path, {**body, "status": status}))
        except NotFound:
            self.watched.shard("DELETED", body)
            raise
        known.positions_s = now_s

    def _again_s(self, seen: Observed, decided: Plan, known: Known) -> float:
        again = [self.settings.positions_s * _jitter()]
        if decided.again_s is not None:
            again.append(decided.again_s)
        record = seen.record
        if record is not None and known.heard.unwell:
            again.append(self.looking.pause_s(known.heard))
        if seen.ailments:
            again.append(AILING_S)
        if record is not None and record.status is not Status.STEADY:
            again.append(LOOK_MIN_S)
        return max(0.05, min(again))


def _jitter() -> float:
    """A thousand Shards that were heard of at once are not looked at at once for ever."""
    return random.uniform(0.8, 1.2)


NEWS_S = 0.1


async def follow_records(reconciler: Reconciler, changed: Callable[[str], None]) -> None:
    """Tells of every shard whose record has changed; what came and went between looks is left."""
    host = reconciler.host
    await host.begun.wait()
    seen: dict[str, Shard] = {}
    given_up: frozenset[str] = frozenset()
    while True:
        if host.shards != seen:
            for name in {*host.shards, *seen}:
                if host.shards.get(name) is not seen.get(name):
                    changed(name)
            seen = dict(host.shards)
        now = frozenset((*host.stopped, *host.unreadable))
        for name in now ^ given_up:
            changed(name)
        given_up = now
        await asyncio.sleep(NEWS_S)
