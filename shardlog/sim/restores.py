"""Restores of the metadata store, and what they may and may not do to a shard.

The store is set back to any earlier revision, also one that it had left by an earlier restore, with
any nodes and coordinators up; then it is written on.  A shard goes on if the replicas can be
brought under the record again.  It halts if they tell of an ensemble that the record cannot know.
Both are checked from outside: a halt must have a reason, and who knows better must be heeded.  The
other reason for a halt is a tail that people gave up though a member had committed it (`losses`).

Where nobody who was asked knows better, acknowledged writes are out of reach.  That ends a run, and
is counted: from then on there are two shards, each with a log of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from shardlog.protocol.effects import Effect, Event
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import BecomeLeader, Envelope, FenceAnswer, Membership
from shardlog.protocol.quorum import Ensemble
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Phase, Shard, Status
from shardlog.sim.failures import LegalEnd, SafetyFailure
from shardlog.sim.observer import Observer

if TYPE_CHECKING:
    from shardlog.sim.world import World

RECENT = 12
"""Half of all restores lead to one of so many revisions."""
RESTORES_MAX = 8
RIGHT_ONE_BACK_US = 400_000


class Restores:
    """All records that ever stood, each with the one that it was written on."""

    __slots__ = ("count", "parents", "place", "random", "records", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(f"restores {world.options.seed}")
        self.records: list[Shard] = []
        # By place in `records`; -1 for the first.
        self.parents: list[int] = []
        # Of the present record.
        self.place = -1
        self.count = 0

    def stored(self, shard: Shard | None) -> None:
        if shard is None:
            self.records, self.parents, self.place = [], [], -1
        else:
            self.parents.append(self.place)
            self.place = len(self.records)
            self.records.append(shard)

    # --- the fault -------------------------------------------------------------------------------

    def strike(self) -> None:
        """Often a recent revision, often one of an election, often with everybody down."""
        present = self.world.store.record
        if present is None or present.status is Status.DELETING or self.count >= RESTORES_MAX:
            return
        random = self.random
        places = list(range(len(self.records) - 1))
        if random.random() < 0.5:
            places = places[-RECENT:]
        if random.random() < 0.4:
            electing = [at for at in places if self.records[at].status is Status.ELECTION]
            places = electing or places
        if not places:
            return
        if random.random() < 0.3:
            for node in self.world.nodes.values():
                node.crash()
        if random.random() < 0.5:
            for operator in self.world.operators.values():
                operator.crash()
        self._restore(random.choice(places))

    def _restore(self, place: int) -> None:
        self.count += 1
        shard, self.place = self.records[place], place
        self.world.statistics.restores += 1
        self.world.restored(shard, f"restore revision {place} of {len(self.records)}: {shard}")

    def right_one_back(self, _: None = None) -> None:
        """Halted: a person finds a later backup."""
        if not self.world.adversary.active or self.count >= 2 * RESTORES_MAX:
            raise LegalEnd("halted")
        places = [at for at, shard in enumerate(self.records) if shard.halted is None]
        self._restore(max(places, key=lambda at: (self.records[at].epoch, at)))

    # --- what it means ---------------------------------------------------------------------------

    def discarded(self) -> list[Shard]:
        """Records that stood once and that the present one does not descend from."""
        kept, at = set(), self.place
        while at >= 0:
            kept.add(at)
            at = self.parents[at]
        return [shard for at, shard in enumerate(self.records) if at not in kept]

    def contradicted(self, record: Shard) -> bool:
        """Whether something that the record does not know of may have changed the ensemble."""
        known = _known(record)
        for shard in self.discarded():
            named = set(shard.ensemble) | set(shard.change.after if shard.change else ())
            if not named <= known or set(shard.ensemble) < set(record.ensemble):
                return True
            if shard.phase is Phase.COMMIT or shard.ensemble != record.ensemble:
                return True
        return False

    def unheeded(self) -> str | None:
        """Who of those that are up and asked knows of an ensemble that the record does not."""
        record = self.world.store.record
        if not self.count or record is None or record.halted is not None:
            return None
        for member in record.fencing_ensemble:
            node = self.world.nodes[member.node]
            if node.up and node.replica.member == member:
                strange = _strange(record, node.replica.membership)
                if strange is not None:
                    return f"{member} was told of {strange}, and the shard does not halt"
        return None


def _known(record: Shard) -> set[Member]:
    return {*record.ensemble, *(record.change.after if record.change else ())}


def _strange(record: Shard, told: Membership | None) -> Member | None:
    """A member of a later ensemble that the record does not know."""
    if told is None or told.epoch <= record.changed_in:
        return None
    known = _known(record)
    return next((member for member in told.ensemble if member not in known), None)


class RestoreChecker(Observer):
    """A halt has a reason; nobody is elected against what those who were asked know."""

    def __init__(self) -> None:
        # By epoch and election: the record, and who answered, when the leader was chosen.
        self.asked: dict[tuple[int, int], tuple[Shard, dict[Member, FenceAnswer]]] = {}
        self.judged: set[tuple[int, int]] = set()

    def on_send(self, world: World, envelope: Envelope) -> None:
        message = envelope.message
        if type(message) is BecomeLeader and world.restores.count:
            coordinator = world.operators[envelope.src].coordinator
            if coordinator.election is not None and coordinator.record is not None:
                found = (coordinator.record, dict(coordinator.election.answers))
                self.asked.setdefault((message.epoch, message.election), found)

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        if shard is None or shard.halted is None:
            return
        restored = world.restores.count and world.restores.contradicted(shard)
        if not restored and not world.losses.left:
            raise SafetyFailure("HaltHasReason", f"nothing contradicts: {shard.halted}")
        world.statistics.halts += 1
        if restored and world.adversary.active and world.restores.random.random() < 0.5:
            world.scheduler.after(RIGHT_ONE_BACK_US, world.restores.right_one_back, None)
        else:
            raise LegalEnd("halted")

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        lead = replica.lead
        if not world.restores.count or lead is None or not lead.serving:
            return
        key = (replica.epoch, replica.election)
        if key in self.asked and key not in self.judged:
            self.judged.add(key)
            self._judge(world, replica, *self.asked[key])

    def _judge(
        self, world: World, replica: Replica, record: Shard, answers: Mapping[Member, FenceAnswer]
    ) -> None:
        """A leader has been elected under a record that was restored."""
        atlas, log = world.atlas, replica.log
        missing = [
            base
            for base, checksum in atlas.chain.items()
            if base >= log.first and not _holds(replica, base, checksum)
        ]
        apart = [each for each in self._ensembles(world) if _may_commit(record, each, answers)]
        if not missing and not apart:
            return
        for member, answer in answers.items():
            if missing and answer.commit > missing[0]:
                raise SafetyFailure(
                    "NoLossOfConfirmedWrite",
                    f"{replica.member} leads without {missing[0]}, which {member} has committed",
                )
            strange = _strange(record, answer.membership)
            if strange is not None:
                raise SafetyFailure(
                    "HeedsWhoKnows", f"{replica.member} leads, and {member} was told of {strange}"
                )
        if missing and not apart:
            raise SafetyFailure(
                "NoLossOfConfirmedWrite",
                f"{replica.member} leads epoch {replica.epoch} without {missing[0]},"
                " and a quorum of every ensemble was asked",
            )
        raise LegalEnd("out of reach")

    @staticmethod
    def _ensembles(world: World) -> set[Ensemble]:
        """Those that decided once, by records that are discarded."""
        return {each for shard in world.restores.discarded() for each in shard.ensembles}


def _holds(replica: Replica, base: int, checksum: int) -> bool:
    header = replica.log.covering(base)
    if header is None:
        return False
    return header.checksum == checksum or base in replica.log.marks


def _may_commit(record: Shard, ensemble: Ensemble, asked: Mapping[Member, FenceAnswer]) -> bool:
    """Whether so many of an ensemble were not asked that they may go on, or have gone on, alone."""
    rest = sum(member not in asked for member in ensemble)
    return rest >= record.quorum.of(len(ensemble)).replication
