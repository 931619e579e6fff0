"""What was wrong once and is mended: each bug as a mutant, which the simulator has to notice."""

from __future__ import annotations

from shardlog.protocol import (
    contradiction,
    electing,
    history,
    leading,
    replica_state,
    serving,
    tending,
)
from shardlog.sim.mutant import Mutant, always

HOLES = (
    Mutant(
        "election_unnamed",
        "a promise is to an epoch, whichever election began it",
        ("rule_21_H4_1",),
        13,
        tuple(
            (module, "same_election", always(True))
            for module in (electing, history, leading, replica_state, tending)
        ),
        "restores",
    ),
    Mutant(
        "ensemble_forgotten",
        "what a fenced replica was told of its ensemble contradicts nothing",
        ("rule_21_H4_2",),
        53,
        ((contradiction, "of_answer", always(None)),),
        "restores",
    ),
    Mutant(
        "retry_taken_on_trust",
        "whatever comes under a used number is answered as a retry",
        ("S04",),
        1,
        ((serving, "is_same_request", always(True)),),
        "sessions",
    ),
)
