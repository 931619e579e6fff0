"""Settings of the property tests, and the mutant under which a whole session may run."""

import os

from hypothesis import HealthCheck, Phase, settings

MUTANT = os.environ.get("SHARDLOG_MUTANT")

settings.register_profile(
    "protocol",
    deadline=None,
    derandomize=True,
    max_examples=200,
    database=None,
    # A mutant need not be explained.
    phases=(Phase.explicit, Phase.generate) if MUTANT else tuple(Phase),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("protocol")

if MUTANT:
    from shardlog.sim.mutants import MUTANTS
    from shardlog.sim.repair_mutants import BY_TEST

    # Before any test module binds a name of what the mutant spoils; for the whole session, so the
    # context is kept, lest it be left when it is collected.
    APPLIED = (MUTANTS | BY_TEST)[MUTANT].applied()
    APPLIED.__enter__()
