"""What a node tells of itself, in the form of `shardlog.process.logs`.

Nobody in the data's path logs: a `Watch` looks at the replicas every now and then and tells what
has changed, so that a replica which flaps a thousand times a second costs a line for each look and
not for each change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from shardlog.process.logs import Logger
from shardlog.protocol.entry import Header
from shardlog.protocol.states import Role
from shardlog_node.clock import NodeClock
from shardlog_node.host import HostedReplica, NodeHost

LOOK_EVERY_MS = 250
REFUSED_EVERY_LOOKS = 40
STUCK_MS = 1000
"""A sync that takes so long is told of while it lasts."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was told of a replica last."""

    role: Role
    epoch: int
    incarnation: int
    leader: str | None
    stalled: str | None


@dataclass(slots=True)
class Damage:
    """What was told of damage since a replica was opened."""

    hosted: HostedReplica
    found: Counter[str] = field(default_factory=Counter)
    repaired: int = 0
    copies: int = 0


class Watch:
    """`look` tells what has changed since the last look; `run` looks until it is cancelled."""

    def __init__(
        self,
        host: NodeHost,
        clock: NodeClock,
        syncing_ms: Callable[[], int],
        refused: Callable[[], tuple[int, str]],
        log: Logger,
    ) -> None:
        self._host = host
        self._clock = clock
        self._syncing_ms = syncing_ms
        self._refused = refused
        self._log = log
        self._seen: dict[str, Seen] = {}
        self._failed: dict[str, str] = {}
        self._damage: dict[str, Damage] = {}
        self._losses: dict[str, set[Header]] = {}
        self._clock_agreed = True
        self._disk_stuck = False
        self._refused_told = 0
        self._damaged: dict[str, int] = {}
        self._looks = 0
        # Counted since the start, for the metrics.
        self.role_changes = 0
        self.epochs = 0

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_MS / 1000)

    def look(self) -> None:
        self._look_at_failures()
        for shard, hosted in self._host.replicas.items():
            replica = hosted.replica
            leader = replica.node if replica.role is Role.LEADER else None
            if replica.leader is not None and leader is None:
                leader = replica.leader.node
            stalled = hosted.store.stalled
            now = Seen(
                replica.role,
                replica.epoch,
                replica.incarnation,
                leader,
                None if stalled is None else str(stalled),
            )
            before = self._seen.get(shard)
            if now != before:
                self._seen[shard] = now
                self._tell(shard, before, now)
            self._look_at_damage(shard, hosted)
            self._look_at_losses(shard, hosted)
        for shard in self._seen.keys() - self._host.replicas.keys() - self._host.failed.keys():
            gone = self._seen.pop(shard)
            self._damage.pop(shard, None)
            self._losses.pop(shard, None)
            self._log.info("replica gone", shard=shard, epoch=gone.epoch)
        self._look_at_sources()
        self._look_at_clock()
        self._look_at_disk()
        if self._looks % REFUSED_EVERY_LOOKS == 0:
            self._look_at_connections()
        self._looks += 1

    def _tell(self, shard: str, before: Seen | None, now: Seen) -> None:
        log = self._log.bind(shard=shard, epoch=now.epoch, role=str(now.role))
        if before is None:
            log.info("replica opened", incarnation=now.incarnation, leader=now.leader)
        elif (before.role, before.leader) != (now.role, now.leader):
            log.info("role", was=str(before.role), leader=now.leader)
        elif before.epoch != now.epoch:
            log.info("epoch", was=before.epoch, leader=now.leader)
        if before is not None:
            self.role_changes += before.role is not now.role
            self.epochs += max(now.epoch - before.epoch, 0)
        stalled_before = before.stalled if before else None
        if now.stalled and not stalled_before:
            log.warning("replica stalled", why=now.stalled)
        elif stalled_before and not now.stalled:
            log.info("replica goes on")

    def _look_at_failures(self) -> None:
        failed = {shard: str(why) for shard, why in self._host.failed.items()}
        for shard, why in failed.items():
            if self._failed.get(shard) != why:
                self._log.error("replica stopped", shard=shard, why=why)
        for shard in self._failed.keys() - failed.keys():
            self._log.info("replica reopened", shard=shard)
        self._failed = failed

    def _look_at_damage(self, shard: str, hosted: HostedReplica) -> None:
        told = self._damage.get(shard)
        if told is None or told.hosted is not hosted:
            told = self._damage[shard] = Damage(hosted)
        for by, entries in (hosted.found_bad - told.found).items():
            self._log.warning("damage found", shard=shard, by=by, entries=entries)
        entries = hosted.repaired - told.repaired
        copies = hosted.store.files.copies_mended - told.copies
        if entries or copies:
            self._log.info("damage repaired", shard=shard, entries=entries, copies=copies)
            told.repaired, told.copies = told.repaired + entries, told.copies + copies
        told.found = hosted.found_bad.copy()

    def _look_at_losses(self, shard: str, hosted: HostedReplica) -> None:
        """What this node leads without, by the word of people who gave it up."""
        lead = hosted.replica.lead
        if lead is None or not lead.losses:
            return
        told = self._losses.setdefault(shard, set())
        for lost in lead.losses:
            if lost not in told:
                told.add(lost)
                until = lost.end if lost.count else "the end"
                epoch = hosted.replica.epoch
                self._log.warning(
                    "loss accepted", shard=shard, entry=str(lost.id), until=until, epoch=epoch
                )

    def _look_at_sources(self) -> None:
        """Who sends entries that are not as they were made."""
        for source, number in self._host.damaged.items():
            new = number - self._damaged.get(source, 0)
            if new:
                self._log.warning("damaged entries refused", source=source, number=new)
                self._damaged[source] = number

    def _look_at_clock(self) -> None:
        agreed = self._clock.agreed is not None
        if agreed != self._clock_agreed:
            self._clock_agreed = agreed
            told = self._log.info if agreed else self._log.warning
            told("clocks agree" if agreed else "clocks disagree", sources=self._clock.sources)

    def _look_at_disk(self) -> None:
        syncing_ms = self._syncing_ms()
        stuck = syncing_ms >= STUCK_MS
        if stuck and not self._disk_stuck:
            self._log.warning("disk stuck", syncing_ms=syncing_ms)
        elif self._disk_stuck and not stuck:
            self._log.info("disk goes on")
        self._disk_stuck = stuck

    def _look_at_connections(self) -> None:
        refused, last = self._refused()
        if refused > self._refused_told:
            number = refused - self._refused_told
            self._log.warning("connections refused", number=number, last=last)
            self._refused_told = refused
