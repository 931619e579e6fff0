"""Drives ShardOperations: writes where each stands, then asks the coordinator.

The phase is always written first.  Whoever finds Running knows that it may have been asked for.

Objects and records come by watches of their own, and none knows how late the others are: another
operator's word that a change is under way may be here before the change itself, and an operation
before its Shard.  So nothing ends an operation but what stands now, read for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from shardlog.coordinator.commanding import Commander
from shardlog.metadata.failures import Unavailable
from shardlog.process.logs import Logger
from shardlog.protocol.coordination import Rejected, Swap
from shardlog_operator.conditions import Condition, Truth, merged
from shardlog_operator.events import Told
from shardlog_operator.kube import ApiFailure, ApiUnavailable, Conflict, Kube, NotFound
from shardlog_operator.operations import PATIENCE_S, Past, Verdict, judge, judge_drain
from shardlog_operator.planning import Situation
from shardlog_operator.publishing import EventPoster, written
from shardlog_operator.spec import (
    ABORTED,
    ENDED,
    OPERATIONS,
    Operation,
    OperationPhase,
    OperationSpec,
    operation_spec,
)
from shardlog_operator.watched import PODS, Watched

Json = Any
AGAIN_S = 1.0
CONFLICT_S = 0.2


@dataclass(slots=True)
class Tries:
    """Of one operation, since when it is asked for in vain, and how often it was begun again."""

    uid: str
    since_s: float | None = None
    begun_again: int = 0


class Operating:
    """`situation` tells how a Shard stands, None if there is none; `clock_s` never goes back."""

    def __init__(
        self,
        kube: Kube,
        watched: Watched,
        commander: Commander,
        situation: Callable[[str], Situation | None],
        poster: EventPoster,
        clock_s: Callable[[], float],
        log: Logger,
    ) -> None:
        self._kube = kube
        self._watched = watched
        self._commander = commander
        self._situation = situation
        self._poster = poster
        self._clock_s = clock_s
        self._log = log
        self._tries: dict[str, Tries] = {}

    async def operate(self, name: str) -> float | None:
        body = self._watched.operations.get(name)
        if body is None:
            self._tries.pop(name, None)
            return None
        asked = operation_spec(body)
        if asked.ended or asked.deleting:
            return None
        if not self._commander.host.begun.is_set():
            return AGAIN_S
        try:
            return await self._go_on(body, asked)
        except Conflict:
            return CONFLICT_S
        except NotFound:
            return None
        except (ApiFailure, Unavailable) as failure:
            level = self._log.info if isinstance(failure, ApiUnavailable) else self._log.error
            level("operation waits", operation=name, why=str(failure))
            return AGAIN_S

    async def _go_on(self, body: Json, asked: OperationSpec) -> float | None:
        verdict = self._judged(asked)
        if verdict.phase in ENDED or _begins_again(asked, verdict):
            await self._read(asked)
            verdict = self._judged(asked)
        await self._write(body, asked, verdict)
        self._count(asked, verdict)
        if verdict.give_up_scaling:
            await self._give_up_scaling(asked.shard or "")
        if verdict.command is not None and verdict.phase is OperationPhase.RUNNING:
            answer = await self._commander.command(asked.shard or "", verdict.command)
            if isinstance(answer, Rejected):
                await self._refused(asked, verdict, answer.reason)
            elif _begins_again(asked, verdict):
                self._tries_of(asked).begun_again += 1
        return None if verdict.phase is not OperationPhase.RUNNING else AGAIN_S

    def _judged(self, asked: OperationSpec) -> Verdict:
        host, shard = self._commander.host, asked.shard or ""
        if asked.operation is Operation.DRAIN:
            return judge_drain(asked, host.shards.values(), host.unreadable)
        if shard in host.unreadable:
            return Verdict(OperationPhase.RUNNING, str(host.unreadable[shard]))
        past = Past(self._tried_s(asked), self._tries_of(asked).begun_again, self._aborted(asked))
        return judge(asked, self._situation(shard), past)

    def _tries_of(self, asked: OperationSpec) -> Tries:
        found = self._tries.get(asked.name)
        if found is None or found.uid != asked.uid:
            found = self._tries[asked.name] = Tries(asked.uid)
        return found

    def _count(self, asked: OperationSpec, verdict: Verdict) -> None:
        """Only what is tried in vain, and without a pause: what it waits for takes its time."""
        tries = self._tries_of(asked)
        if not verdict.bounded:
            tries.since_s = None
        elif tries.since_s is None:
            tries.since_s = self._clock_s()

    def _tried_s(self, asked: OperationSpec) -> float:
        since_s = self._tries_of(asked).since_s
        return self._clock_s() - since_s if since_s is not None else 0.0

    def _aborted(self, asked: OperationSpec) -> bool:
        """Whatever became of the Abort: between two tries of a swap it finds nothing to give up."""
        return asked.started and any(
            each.operation is Operation.ABORT
            and each.shard == asked.shard
            and each.created >= asked.created
            for each in self._watched.specs()
        )

    async def _read(self, asked: OperationSpec) -> None:
        """The Shard, its record, nodes and operations as they are, not as they were heard of."""
        shard = asked.shard
        if shard is None:
            await self._commander.catch_up_with_all()
            return
        with suppress(NotFound):
            self._watched.wrote_shard(await self._kube.get(self._kube.shard(shard)))
        pods = await self._kube.get(self._kube.listing(PODS))
        self._watched.relist(PODS, pods)
        operations = await self._kube.get(self._kube.listing(OPERATIONS))
        self._watched.relist(OPERATIONS, operations)
        await self._commander.catch_up(shard)

    async def _refused(self, asked: OperationSpec, verdict: Verdict, why: str) -> None:
        """Most refusals pass; the record is judged again in a moment.

        Another operator may just have been quicker: it is not over while there is something else
        to do than to ask for the same again.
        """
        phase = OperationPhase.RUNNING
        if self._tried_s(asked) >= PATIENCE_S:
            await self._read(asked)
            if self._judged(asked).command == verdict.command:
                phase = OperationPhase.FAILED
        body = self._watched.operations.get(asked.name)
        if body is not None:
            await self._write(body, operation_spec(body), Verdict(phase, f"refused: {why}"))

    async def _give_up_scaling(self, shard: str) -> None:
        body = self._watched.shards.get(shard)
        if body is None:
            return
        generation = str(body["metadata"].get("generation", 1))
        change = {"metadata": {"annotations": {ABORTED: generation}}}
        self._watched.wrote_shard(await self._kube.patch(self._kube.shard(shard), change))
        self._watched.shard_heard(shard)

    async def _write(self, body: Json, asked: OperationSpec, verdict: Verdict) -> None:
        at = written(time.time())
        before = body.get("status") or {}
        started = verdict.started or asked.started
        ended = verdict.phase in ENDED
        conditions = [
            Condition("Started", Truth.of(started), "UnderWay" if started else "NotYet"),
            Condition("Complete", Truth.of(ended), verdict.phase.value, verdict.message),
        ]
        status: Json = {
            "phase": verdict.phase.value,
            "message": verdict.message,
            "startedAt": before.get("startedAt", at),
            "observedGeneration": asked.generation,
            "conditions": merged(before.get("conditions") or (), conditions, asked.generation, at),
        }
        if ended:
            status["completedAt"] = before.get("completedAt", at)
        if status == before:
            return
        changed = {**body, "status": status}
        path = self._kube.operation(asked.name, "status")
        self._watched.wrote_operation(await self._kube.replace(path, changed))
        if verdict.phase is not asked.phase:
            failed = verdict.phase is OperationPhase.FAILED
            self._poster.tell(changed, Told(verdict.phase.value, verdict.message, warning=failed))


def _begins_again(asked: OperationSpec, verdict: Verdict) -> bool:
    """What was under way once, and is not any more."""
    return asked.started and isinstance(verdict.command, Swap)
