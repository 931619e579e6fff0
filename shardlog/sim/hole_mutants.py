"""What was wrong once and is mended: each bug as a mutant, which the simulator has to notice."""

from __future__ import annotations

from typing import Any

from shardlog.protocol import (
    contradiction,
    electing,
    history,
    leading,
    losing,
    replica_state,
    serving,
    tending,
)
from shardlog.protocol.replica_state import ReplicaState
from shardlog.protocol.sessions import SessionTable
from shardlog.sim.mutant import Mutant, always

_APPLY: Any = ReplicaState.apply


def _by_own_limits(self: ReplicaState) -> None:
    table, own = self.sessions, self.limits
    named = table.limits
    mine = named._replace(sessions_max=own.sessions_max, replies_max=own.replies_max)
    table.limits = mine
    _APPLY(self)
    if table.limits is mine:
        table.limits = named


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
        2,
        ((serving, "is_same_request", always(True)),),
        "sessions",
    ),
    Mutant(
        "sessions_survive_a_loss",
        "behind a loss of which no header is left the table of sessions is not started over",
        ("hole_4_11",),
        22,
        ((losing, "leaves_sessions_in_doubt", always(False)),),
        "sessions",
    ),
    Mutant(
        "limits_of_the_release",
        "each replica keeps as many sessions and replies as its own release says",
        ("hole_4_12",),
        1,
        ((ReplicaState, "apply", _by_own_limits),),
        "sessions",
    ),
    Mutant(
        "registration_not_remembered",
        "a registration that is sent again opens another session",
        ("B2",),
        22,
        ((SessionTable, "opened_with", always(None)),),
        "sessions",
    ),
)
