"""How long everything takes, and what is varied; one factor at a time around the same middle.

The middle: three replicas, one shard, records of 128 B.
"""

from __future__ import annotations

from dataclasses import dataclass

REPLICAS = 3
RECORD_BYTES = 128
CONNECTIONS = 64
RATE_LOW, RATE_HIGH = 2_000, 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float
    """Of a pattern in a turn."""
    warm_up_s: float
    """Saturated, before anything is measured: a JVM compiles meanwhile."""
    turns: int
    read_s: float
    kills: int
    pause_s: float
    rates: tuple[int, ...]
    """Offered; those besides the two of the table are for the plot."""
    sizes: tuple[int, ...]
    shards: tuple[int, ...]
    replicas: tuple[int, ...]
    log_mib: tuple[int, ...]
    fresh: bool
    """Whether each sweep has a cluster of its own, which begins with empty disks."""
    system_s: float
    """What a system may take; what is left then is left out."""
    total_s: float
    """After this no other system is begun."""
    yardstick_turns: int
    yardstick_s: float


QUICK = Plan(
    seconds=2, warm_up_s=3, turns=1, read_s=5, kills=1, pause_s=30,
    rates=(RATE_LOW, RATE_HIGH), sizes=(16, 16 << 10, 1 << 20), shards=(10,), replicas=(),
    log_mib=(), fresh=False, system_s=75, total_s=480, yardstick_turns=1, yardstick_s=1,
)  # fmt: skip

WHOLE = Plan(
    seconds=4, warm_up_s=8, turns=3, read_s=15, kills=3, pause_s=45,
    rates=(RATE_LOW, 5_000, 10_000, RATE_HIGH, 50_000),
    sizes=(16, 1 << 10, 8 << 10, 64 << 10, 1 << 20), shards=(10, 100, 1_000), replicas=(5,),
    log_mib=(64, 256, 1024, 4096), fresh=True, system_s=430, total_s=3000,
    yardstick_turns=3, yardstick_s=1,
)  # fmt: skip

TRIAL = Plan(
    seconds=0.5, warm_up_s=0.5, turns=1, read_s=2, kills=1, pause_s=40,
    rates=(RATE_LOW, RATE_HIGH), sizes=(1 << 20,), shards=(10,), replicas=(5,),
    log_mib=(16,), fresh=False, system_s=120, total_s=1200, yardstick_turns=1, yardstick_s=0.3,
)  # fmt: skip
"""Does it all work?  The figures mean nothing."""
