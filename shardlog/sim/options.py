"""Every knob of a simulated run, all drawn from one seed.

Rates are mean times between events in virtual milliseconds; 0 means never.  Not every run gets
every fault: a quiet run reaches states that a storm never lets happen, so each kind is switched on
by a coin of its own.  Any option can be overridden with `dataclasses.replace`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from shardlog.protocol.coordination import CoordinatorLimits
from shardlog.protocol.effects import Limits
from shardlog.protocol.quorum import QuorumPolicy, is_safe

DEFAULT_PROFILE = "default"


@dataclass(frozen=True, slots=True)
class Options:
    """One run.  The order of the fields is the order of drawing: append, never insert."""

    seed: int = 0

    # The cluster.
    members: int = 3
    spares: int = 2
    quorum: QuorumPolicy = QuorumPolicy()
    coordinators: int = 1
    tick_ms: int = 20
    skew_ms_max: int = 0
    drift_ppm_max: int = 0
    limits: Limits = Limits()
    coordinator_limits: CoordinatorLimits = CoordinatorLimits()

    # Clients.
    clients: int = 3
    think_ms: int = 40
    client_timeout_ms: int = 300
    pipeline_max: int = 3
    reads: float = 0.3
    abandon: float = 0.0

    # The network.
    link_delay_us: int = 1000
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    cut_every_ms: int = 0
    cut_ms: int = 800
    clog_every_ms: int = 0
    clog_ms: int = 800

    # Nodes.
    crash_every_ms: int = 0
    down_ms: int = 600
    pause_every_ms: int = 0
    pause_ms: int = 500
    wipe_every_ms: int = 0

    # Disks.
    sync_us: int = 500
    headers_last: bool = False  # header copies are written when the bodies are durable
    scrub_every_ms: int = 100
    rot_every_ms: int = 0
    misdirect_every_ms: int = 0
    io_error_every_ms: int = 0

    # Coordinators, their store, and what people ask of them.
    coordinator_crash_every_ms: int = 0
    coordinator_down_ms: int = 500
    store_us: int = 2000
    command_every_ms: int = 1500

    # How long it lasts.
    messages_min: int = 5000
    elections_min: int = 3
    changes_min: int = 1
    safety_ms_max: int = 30_000
    liveness_ms_max: int = 60_000
    leave_down: bool = False
    ambush: float = 0.0
    readers: int = 0

    # Clocks that are set, answers of the store that do not come.
    clock_step_every_ms: int = 0
    store_lost: float = 0.0
    store_late: float = 0.0

    # Before the first fault: time for changes that get done, so that storms meet other sizes, too.
    calm_ms: int = 0

    # Whether the disks are the storage engine itself, over faulty files; else a model of it.
    engine: bool = False

    # Whether the shard is deleted in the end.
    delete: bool = False

    # Nodes that stop of their own accord, once they lead nothing or have waited long enough.
    drain_every_ms: int = 0
    drain_ms: int = 1000

    # Whether the machine of a dead process tells operators that nobody listens there.
    refusing: bool = False

    # How often operators look at nodes; if they do not, shards at rest are not woken.
    look_ms: int = 0

    # Entries that are destroyed on every disk, so that people have to give them up.
    destroy_every_ms: int = 0

    # Of messages with entries: how many come damaged, and are refused by whoever gets them.
    damaged: float = 0.0

    # Of old entries: what a replica may send from tick to tick; 0 for no bound.
    feed_bytes: int = 0

    # The metadata store is set back to an earlier revision.
    restore_every_ms: int = 0

    # How often a client uses the next number of another one's session, instead of its own.
    steal: float = 0.0

    # Entries count before they are synced; the power goes at some of the nodes, at once.
    relaxed: bool = False
    power_every_ms: int = 0

    # How often people give up what an election waits for: if no disk has it, or, in a hurry, none
    # of a node that is up.
    gives_up: float = 0.0
    hurry: float = 0.0

    # A node runs without its volume, and gets it back.
    away_every_ms: int = 0

    # How often a refusal to an operator comes again, several times, long after.
    echo: float = 0.0

    # So many entries are kept; the oldest go when there are more.  0: all.
    retained: int = 0

    # Whether nodes differ in how many sessions and replies a shard keeps that begins under them.
    mixed: bool = False

    # The name of the set of options that these come from, see `profiles`.
    profile: str = DEFAULT_PROFILE

    def limits_of(self, node: str) -> Limits:
        """The limits of one node: in a mixed cluster each is of another release."""
        if not self.mixed:
            return self.limits
        random = Random(f"limits {self.seed} {node}")
        sessions_max, replies_max = random.choice((2, 3, 16)), random.choice((8, 9, 16))
        return replace(self.limits, sessions_max=sessions_max, replies_max=replies_max)

    @classmethod
    def of(cls, seed: int) -> Options:
        """The options of `seed`."""
        random = Random(f"options {seed}")
        storm = random.choice((0.6, 1.0, 1.0, 2.0))
        speed = random.choice((0.5, 1.0, 1.0))
        members = random.choice((1, 2, 3, 3, 3, 3, 4, 5, 5, 6, 7))

        def sometimes(chance: float, low: int, high: int) -> int:
            drawn = int(random.randint(low, high) / storm)
            return drawn if random.random() < chance else 0

        def chance(likely: float, most: float) -> float:
            drawn = round(random.random() * most * storm, 4)
            return drawn if random.random() < likely else 0.0

        drawn = cls(
            seed=seed,
            members=members,
            spares=random.randint(1, 3),
            quorum=_quorum(random, members),
            coordinators=random.choice((1, 1, 2, 3)),
            tick_ms=random.choice((10, 20, 25)),
            skew_ms_max=random.choice((0, 5, 500, 5000)),
            drift_ppm_max=random.choice((0, 100, 50_000)),
            limits=_limits(random, speed),
            coordinator_limits=_coordinator_limits(random, speed),
            clients=random.randint(2, 5),
            think_ms=random.choice((5, 20, 40, 100)),
            client_timeout_ms=random.choice((100, 200, 400)),
            pipeline_max=random.randint(1, 4),
            reads=random.choice((0.1, 0.3, 0.6)),
            abandon=random.choice((0.0, 0.0, 0.01)),
            link_delay_us=random.choice((200, 1000, 1000, 4000)),
            loss=chance(0.5, 0.05),
            duplicate=chance(0.5, 0.05),
            reorder=chance(0.5, 0.2),
            cut_every_ms=sometimes(0.6, 500, 3000),
            cut_ms=random.choice((200, 800, 2000)),
            clog_every_ms=sometimes(0.4, 500, 3000),
            clog_ms=random.choice((200, 800, 2000)),
            crash_every_ms=sometimes(0.8, 400, 3000),
            down_ms=random.choice((50, 400, 1500)),
            pause_every_ms=sometimes(0.4, 500, 3000),
            pause_ms=random.choice((100, 500, 1500)),
            wipe_every_ms=sometimes(0.4, 1500, 6000),
            sync_us=random.choice((100, 500, 2000, 8000)),
            scrub_every_ms=random.choice((0, 20, 100)),
            rot_every_ms=sometimes(0.5, 100, 2000),
            misdirect_every_ms=sometimes(0.3, 500, 3000),
            io_error_every_ms=sometimes(0.3, 1000, 5000),
            coordinator_crash_every_ms=sometimes(0.6, 400, 3000),
            coordinator_down_ms=random.choice((50, 400, 1500)),
            store_us=random.choice((500, 2000, 20_000)),
            command_every_ms=sometimes(0.95, 300, 3000),
            leave_down=random.random() < 0.25,
            ambush=random.choice((0.0, 0.3, 0.6, 0.9, 0.9)),
            readers=random.choice((0, 1)),
            headers_last=random.random() < 0.5,
            clock_step_every_ms=sometimes(0.4, 300, 3000),
            store_lost=chance(0.4, 0.1),
            store_late=chance(0.4, 0.1),
            calm_ms=random.choice((0, 0, 2000, 4000)),
            changes_min=random.choice((1, 1, 1, 2, 4)),
            delete=random.random() < 0.3,
            **_stops(seed, storm),
            destroy_every_ms=_destruction(seed, storm),
        )
        return _fed(_paced(drawn, speed))

    def on_engine(self) -> Options:
        """The same over the storage engine, with so little in memory that the disk is asked."""
        random = Random(f"engine {self.seed}")
        limits = replace(
            self.limits,
            headers_kept=random.choice((1, 4, 16)),
            checkpoint_entries=random.choice((1, 8, 32)),
        )
        return replace(self, engine=True, limits=limits)

    @property
    def nodes(self) -> int:
        return self.members + self.spares

    def lines(self) -> list[str]:
        """One line for each option, in a fixed order."""
        return [f"{field.name} = {getattr(self, field.name)!r}" for field in fields(self)]


def _stops(seed: int, storm: float) -> dict[str, Any]:
    """Drawn apart: runs without them are what they were before there were any."""
    random = Random(f"stopped {seed}")
    drains, refusing = random.random() < 0.3, random.random() < 0.35
    return {
        "drain_every_ms": int(random.randint(500, 3000) / storm) if drains else 0,
        "drain_ms": random.choice((200, 1000, 3000)),
        "refusing": refusing,
    }


def _paced(options: Options, speed: float) -> Options:
    """Drawn apart, too: how seldom a shard at rest is looked at, and who wakes it."""
    random = Random(f"pace {options.seed}")
    limits = replace(
        options.coordinator_limits,
        rest_ms=int(random.choice((200, 1000, 3000)) * speed),
        alert_ms=int(random.choice((0, 200, 500)) * speed),
    )
    rests = (50, 200, 500 if options.seed % 2 == 0 else 200)  # 500: as nodes have it
    slow = replace(options.limits, rest_ms=int(random.choice(rests) * speed))
    look_ms = random.choice((0, 50, 100))
    return replace(options, limits=slow, coordinator_limits=limits, look_ms=look_ms)


def _fed(options: Options) -> Options:
    """Drawn apart: sources that lie, and a pace, which is felt by whoever is a little behind."""
    random = Random(f"fed {options.seed}")
    damaged = random.choice((0.02, 0.1, 0.3)) if random.random() < 0.35 else 0.0
    if random.random() < 0.65:
        return replace(options, damaged=damaged)
    limits = replace(options.limits, inflight_bytes_max=random.choice((100, 1000)))
    feed_bytes = random.choice((300, 2000))
    return replace(options, damaged=damaged, feed_bytes=feed_bytes, limits=limits)


def _destruction(seed: int, storm: float) -> int:
    """Drawn apart, as above."""
    random = Random(f"destroyed {seed}")
    return int(random.randint(1000, 6000) / storm) if random.random() < 0.25 else 0


def _quorum(random: Random, members: int) -> QuorumPolicy:
    """Mostly majorities; otherwise any legal pair, and more often one that only just meets."""
    replication, fencing = random.randint(1, members), random.randint(1, members)
    if random.random() < 0.5:
        fencing = members + 1 - replication
        if random.random() < 0.5:
            replication, fencing = members, 1
    if random.random() < 0.6 or not is_safe(members, replication, fencing):
        return QuorumPolicy()
    return QuorumPolicy(replication, fencing)


def _limits(random: Random, speed: float) -> Limits:
    """Small numbers, so that bounds are met and not only approached."""
    replies_max = random.choice((4, 8))
    return Limits(
        heartbeat_ms=int(50 * speed),
        quorum_silence_ms=int(300 * speed),
        resend_ms=int(150 * speed),
        pause_ms=int(500 * speed),
        repair_retry_ms=int(100 * speed),
        repair_tries_max=random.choice((5, 20)),
        batch_entries_max=random.choice((1, 4, 16)),
        inflight_entries_max=random.choice((1, 1, 4, 16, 64)),
        appends_inflight_max=random.choice((4, 32, 256)),
        standby_lag_entries_max=random.choice((2, 8)),
        sessions_max=random.choice((2, 4, 16, 64)),
        replies_max=replies_max,
    )


def _coordinator_limits(random: Random, speed: float) -> CoordinatorLimits:
    factor = speed * random.choice((0.5, 1.0))
    return CoordinatorLimits(
        status_ms=int(100 * speed),
        gone_ms=int(200 * speed),
        resend_ms=int(150 * speed),
        leader_timeout_ms=int(600 * speed),
        election_timeout_ms=int(1500 * factor),
        change_timeout_ms=int(6000 * factor),
        join_timeout_ms=int(10_000 * factor),
        pause_ms=int(400 * speed),
        write_timeout_ms=int(random.choice((300, 2000)) * speed),
    )
