"""All shards of one metadata store, coordinated by one process.

Any number of processes may do this at once, for the same shards: they only get in each other's
way, and whoever loses a compare-and-swap starts from what the other wrote.

One process carries a thousand shards, because a shard at rest is left alone: all of them share one
timer, and what may wake them up is seen by looking at nodes (`watching`).

What is wrong with one shard, its record or an invariant, ends the work on that one alone.  A store
that does not answer is asked again.  Only a store that is closed or unusable ends it all.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable

from shardlog.coordinator.driver import Control, DriverLimits, ShardCoordinator, Surroundings
from shardlog.coordinator.elections import ElectionTurns
from shardlog.coordinator.leaders import LeaderCounts
from shardlog.coordinator.scaling import count_replicas
from shardlog.coordinator.timetable import Timetable
from shardlog.coordinator.watching import NodeWatch
from shardlog.metadata.failures import BadKey, BadRecord, MetadataFailure, Unavailable
from shardlog.metadata.records import SHARDS, decode_shard
from shardlog.metadata.store import ABSENT, Change, Listing, MetadataStore, News, Versioned
from shardlog.protocol.awaiting import at_stake, awaited
from shardlog.protocol.choice import Waiting
from shardlog.protocol.coordination import (
    Accepted,
    Alerted,
    Command,
    CoordinatorLimits,
    Loaded,
    NobodyListens,
    Rejected,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.shard import Shard


class CoordinatorHost:
    """`name` is what nodes know this process by.  `run` is a task for as long as it coordinates."""

    def __init__(
        self,
        name: str,
        store: MetadataStore,
        control: Control,
        clock_ms: Callable[[], int],
        limits: CoordinatorLimits | None = None,
        driver_limits: DriverLimits | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.control = control
        self.clock_ms = clock_ms
        self.limits = limits or CoordinatorLimits()
        self.driver_limits = driver_limits or DriverLimits()
        self.shards: dict[str, Shard] = {}
        # Of the store, up to which `shards` tells everything.
        self.revision = 0
        # Records that cannot be read, by shard: nothing is done for these.
        self.unreadable: dict[str, BadRecord] = {}
        # Shards that this process has given up, and why.
        self.stopped: dict[str, Exception] = {}
        self._coordinators: dict[str, ShardCoordinator] = {}
        self._leaders = LeaderCounts()
        # The shards that each node hosts, those on their way in or out among them.
        self._hosted: dict[str, set[str]] = {}
        self._around: Surroundings
        self._watch: NodeWatch
        # Set to what no shard can be blamed for.
        self._broken: asyncio.Future[None]
        # Set once the shards have been read.
        self.begun = asyncio.Event()

    async def run(self) -> None:
        """Coordinate whatever shards there are, until cancelled, `Closed` or `Unusable`."""
        try:
            async with asyncio.TaskGroup() as group:
                self._begin(group)
                await self._follow()
        except BaseExceptionGroup as failures:
            ends, bugs = failures.split(MetadataFailure)
            if ends is None or bugs is not None:
                raise
            raise ends.exceptions[0] from None
        finally:
            for coordinator in self._coordinators.values():
                coordinator.stop()
            self._around.timetable.stop()

    def _begin(self, group: asyncio.TaskGroup) -> None:
        self._around = Surroundings(
            self.store,
            self.control,
            self.clock_ms,
            self.driver_limits,
            Timetable(),
            self._leaders,
            ElectionTurns(),
        )
        self._watch = NodeWatch(self.control, self.driver_limits, self, group)
        self._broken = asyncio.get_running_loop().create_future()
        group.create_task(self._until_broken())

    async def _until_broken(self) -> None:
        await self._broken

    async def _follow(self) -> None:
        """The records as they are, then everything that becomes of them."""
        listing = await self._listing()
        self._relist(listing.records)
        self.revision = listing.revision
        self.begun.set()
        async with self.store.watch(SHARDS, listing.next_revision) as watch:
            async for news in watch:
                self._learn(news)
                self.revision = news.revision

    async def _listing(self) -> Listing:
        while True:
            try:
                return await self.store.list(SHARDS)
            except Unavailable:
                await asyncio.sleep(self.driver_limits.reread_ms / 1000)

    async def command(self, shard: str, command: Command) -> Accepted | Rejected:
        """Ask for something; see `ShardCoordinator.command`."""
        await self.begun.wait()
        given_up = self.unreadable.get(shard) or self.stopped.get(shard)
        if given_up is not None:
            return Rejected(0, str(given_up))
        try:
            coordinator = self._coordinator(shard)
        except BadKey as problem:
            return Rejected(0, str(problem))
        if coordinator.machine.version < ABSENT:
            coordinator.step(Loaded(ABSENT, None))
        answer = await coordinator.command(command)
        if isinstance(answer, Rejected) and coordinator.idle and shard not in self.shards:
            self._forget(shard)
        return answer

    def waiting(self, shard: str) -> Waiting | None:
        """What the shard's election, or a repair, waits for, as far as this process knows."""
        known = self._coordinators.get(shard)
        return awaited(known.machine) if known is not None else None

    def hears_leader(self, shard: str) -> bool:
        """Whether the leader has said how it is since its epoch began."""
        known = self._coordinators.get(shard)
        record = known.machine.record if known is not None else None
        return known is not None and record is not None and record.leader in known.machine.seen

    def at_stake(self, shard: str) -> Header | None:
        """What would be lost if the entry that the shard's election waits for were given up."""
        known = self._coordinators.get(shard)
        return at_stake(known.machine) if known is not None else None

    def _coordinator(self, shard: str) -> ShardCoordinator:
        """The shard's coordinator, begun if need be."""
        known = self._coordinators.get(shard)
        if known is None:
            machine = Coordinator(self.name, shard, self.limits, secrets.randbits(62) or 1)
            known = ShardCoordinator(machine, self._around, self._failed)
            self._coordinators[shard] = known
            known.start()
        return known

    def _failed(self, coordinator: ShardCoordinator, failure: BaseException) -> None:
        """A broken invariant ends the work on its shard, and on no other."""
        shard = coordinator.machine.shard
        coordinator.stop()
        if self._coordinators.get(shard) is not coordinator:
            return
        if isinstance(failure, BadRecord):
            self._forget(shard)
            self.unreadable[shard] = failure
        elif isinstance(failure, ImpossibleState | MetadataFailure):
            self.stopped[shard] = failure
        elif not self._broken.done():
            self._broken.set_exception(failure)

    # --- nodes -----------------------------------------------------------------------------------

    def hosted_changed(self, node: str, shards: Iterable[str] | None) -> None:
        """Look closely; but only at what the node hosts by the records."""
        hosted = self._hosted.get(node, set())
        for shard in sorted(hosted if shards is None else hosted.intersection(shards)):
            self._wake(shard, Alerted())

    def fell_silent(self, node: str) -> None:
        for shard, _ in self._led_by(node):
            self._wake(shard, Alerted())

    def nobody_listens(self, node: str) -> None:
        for shard, leader in self._led_by(node):
            self._wake(shard, NobodyListens(leader))

    def _led_by(self, node: str) -> list[tuple[str, Member]]:
        """Only a leader that may be gone is urgent."""
        found = [(shard, self.shards[shard].leader) for shard in sorted(self._hosted.get(node, ()))]
        return [(shard, leader) for shard, leader in found if leader and leader.node == node]

    def _wake(self, shard: str, event: Alerted | NobodyListens) -> None:
        coordinator = self._coordinators.get(shard)
        if coordinator is not None:
            coordinator.step(event)

    def _keep(self, name: str, shard: Shard | None) -> None:
        """The record as it is now; None if it is not for us."""
        before = self.shards.get(name)
        self._leaders.change(before, shard)
        old, new = _nodes_of(before), _nodes_of(shard)
        for node in old - new:
            self._hosted[node].discard(name)
            if not self._hosted[node]:
                del self._hosted[node]
                self._watch.drop(node)
        for node in new - old:
            self._hosted.setdefault(node, set()).add(name)
            self._watch.keep(node)
        if shard is not None:
            self.shards[name] = shard
        else:
            self.shards.pop(name, None)

    # --- news ------------------------------------------------------------------------------------

    def _learn(self, news: News) -> None:
        if not isinstance(news, Change):
            self._relist(news.records)
        elif news.value is None:
            self._deleted(news.key.removeprefix(SHARDS), news.revision)
        else:
            self._take(Versioned(news.key, news.revision, news.value))

    def _relist(self, records: Iterable[Versioned]) -> None:
        there = {record.key.removeprefix(SHARDS): record for record in records}
        for shard in {*self.shards, *self.unreadable, *self.stopped} - there.keys():
            self._forget(shard)
            self.stopped.pop(shard, None)
        for shard, record in there.items():
            known = self._coordinators.get(shard)
            if known is not None and known.machine.version > record.version:
                # The store has gone back: what is known of this shard is not so any more.
                self._forget(shard)
            self._take(record)

    def _take(self, record: Versioned) -> None:
        shard = record.key.removeprefix(SHARDS)
        try:
            decoded = decode_shard(record.key, record.value)
        except BadRecord as problem:
            self._forget(shard)
            self.unreadable[shard] = problem
            return
        self.unreadable.pop(shard, None)
        self._keep(shard, decoded)
        if shard not in self.stopped:
            self._coordinator(shard).step(Loaded(record.version, decoded))

    def _deleted(self, shard: str, revision: int) -> None:
        """Unless our own coordinator has made it again meanwhile: that is told next."""
        known = self._coordinators.get(shard)
        if known is not None and known.machine.version > revision:
            self._keep(shard, None)
        else:
            self._forget(shard)
            self.stopped.pop(shard, None)

    def _forget(self, shard: str) -> None:
        """The record is gone, or not for us: leave the shard alone."""
        self._keep(shard, None)
        self.unreadable.pop(shard, None)
        coordinator = self._coordinators.pop(shard, None)
        if coordinator is not None:
            coordinator.stop()


def _nodes_of(shard: Shard | None) -> set[str]:
    return set(count_replicas([shard])) if shard is not None else set()
