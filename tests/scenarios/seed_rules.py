"""The rules that a scenario may break: all mutants of the simulator, and the Oxia seed's election.

The trace of rule 8 needs both the seed's COMMIT before coverage and the seed's election: with
either of them alone nothing is lost on that path, because our election fences both ensembles and
looks at the leaving node's log too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from shardlog.protocol import choice
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.history import clip
from shardlog.protocol.messages import FenceAnswer, Kept
from shardlog.protocol.quorum import Ensemble, QuorumPolicy
from shardlog.sim.mutants import ALL_MUTANTS


def seed_election(
    answers: Mapping[Member, FenceAnswer],
    ensembles: Sequence[Ensemble],
    policy: QuorumPolicy,
    *,
    preferred: str | None = None,
    excluded: Iterable[Member] = (),
    leaders: Mapping[str, int] = choice.NOBODY_LEADS,
    draining: Iterable[Member] = (),
    losses: Sequence[Header] = (),
) -> choice.Decision | choice.Waiting:
    """The Oxia seed: a majority of the fencing ensemble, then the highest head among the final one.

    The leader goes on with its own log; what others hold counts for nothing.
    """
    fencing_ensemble = {member for ensemble in ensembles for member in ensemble}
    if len(answers) < policy.of(len(fencing_ensemble)).fencing:
        return choice.Waiting(None, "no fencing quorum yet")
    logs = {
        member: choice.Possible(answers[member]) for member in ensembles[-1] if member in answers
    }
    leader = max(logs, key=lambda member: choice.rank(logs[member]))
    answer = answers[leader]
    kept = Kept(clip(answer.history, answer.end), answer.end, answer.head)
    return choice.Decision(leader, kept, ())


@contextmanager
def broken(names: Iterable[str]) -> Iterator[None]:
    """While it lasts, the named rules are broken."""
    with ExitStack() as stack:
        for name in names:
            if name == "seed_election":
                stack.enter_context(patch.object(choice, "decide", seed_election))
            else:
                stack.enter_context(ALL_MUTANTS[name].applied())
        yield
