"""Which log survives an election, and who leads it.

Corrupt is not absent.  A fence answer tells, slot by slot, what a replica holds, what it held and
can no longer read, and what it positively never had.  The best *possible* log is the one whose
last entry has the highest (epoch, offset), bad slots included: whatever was committed is in it,
because a committed entry is on a replication quorum, and that meets every fencing quorum.

Then the best log is walked.  An entry with a valid copy somewhere is kept; the leader will fetch
it.  An entry without one stops the election until a copy turns up, or until so many replicas
positively never had it that it cannot have been committed (a nack quorum).  Only then is the log
cut there, and the ranking starts again.

A tail that cannot be read has no end that anybody knows, but it held no more entries than it has
slots; and since one leader wrote all entries of an epoch, those whom others hold from there on are
the ones it may have held.  So its end is known where enough of them are, and it does not make an
election wait for an entry that nobody ever had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from shardlog.protocol.entry import EntryId, Header, Member
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.history import OPEN_END, clip, divergence, epoch_at, last_epoch
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import FenceAnswer, Kept, Slot
from shardlog.protocol.quorum import Ensemble, QuorumPolicy, reached

NOBODY_LEADS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not yet: `entry` may have been committed and no valid copy has answered.

    What is awaited could come from `members`: they have not answered, or what they hold is bad.
    """

    entry: EntryId | None
    reason: str
    members: tuple[Member, ...] = ()

    def __str__(self) -> str:
        named = f" {self.entry}" if self.entry else ""
        could = ", ".join(str(member) for member in self.members)
        return f"{self.reason}{named}" + (f": {could}" if could else "")


@dataclass(frozen=True, slots=True)
class Decision:
    """Who leads, with which log, and where to fetch what is missing or bad."""

    leader: Member
    kept: Kept
    sources: tuple[Member, ...]


class Possible:
    """A fence answer as a log that may still be cut."""

    __slots__ = ("answer", "end", "open_tail", "slots")

    def __init__(self, answer: FenceAnswer) -> None:
        self.answer = answer
        self.end = answer.end
        self.open_tail = answer.open_tail
        self.slots: list[Slot] = list(answer.slots)

    @property
    def may_end(self) -> int:
        return OPEN_END if self.open_tail else self.end

    def epoch_at(self, offset: int) -> int:
        return epoch_at(clip(self.answer.history, self.may_end), offset)

    def epoch_end(self, offset: int) -> int:
        """Where the next epoch begins."""
        later = (span.first for span in self.answer.history if span.first > offset)
        return min(later, default=OPEN_END)

    def cut(self, end: int) -> None:
        """From now on the log is known to end at `end`."""
        self.end, self.open_tail = end, False
        kept = [slot for slot in self.slots if slot.base < end]
        self.slots = [replace(slot, end=min(slot.end or end, end)) for slot in kept]

    def close_tail(self, end: int) -> None:
        """The unreadable tail cannot have reached beyond `end`."""
        self.end, self.open_tail = end, False
        self.slots = [slot if slot.end else replace(slot, end=end) for slot in self.slots]

    def slot_at(self, offset: int) -> Slot | None:
        for slot in self.slots:
            if slot.base <= offset and (offset < slot.end or not slot.end):
                return slot
        return None

    def copy_end(self, epoch: int, offset: int) -> int | None:
        """Where a valid copy of the entry (epoch, offset) ends here; None if there is none.

        Below its commit offset a replica lists only what is bad, so the rest counts as good.
        """
        if offset < self.answer.first or offset >= self.end or self.epoch_at(offset) != epoch:
            return None
        slot = self.slot_at(offset)
        if slot is not None:
            return slot.end if slot.mark is Mark.PRESENT and slot.base == offset else None
        if offset >= self.answer.commit:
            return None
        later = [slot.base for slot in self.slots if offset < slot.base < self.answer.commit]
        return min([self.answer.commit, *later])

    def never_had(self, epoch: int, offset: int) -> bool:
        """Whether this replica positively never held the entry (epoch, offset): a nack.

        A corrupt slot still tells whose it is: it disowns the entries of all other epochs.
        """
        if offset < self.answer.first:
            return False
        if offset >= self.end:
            return not self.open_tail
        slot = self.slot_at(offset)
        if slot is not None and slot.mark is not Mark.PRESENT:
            return slot.mark is not Mark.FAULT and slot.epoch != epoch
        return self.epoch_at(offset) != epoch


def bound_tails(logs: Collection[Possible]) -> None:
    """Close every open tail of which it is known where it must have ended, at the latest."""
    ends = [(log, _tail_end(log, logs)) for log in logs if log.open_tail]
    for log, end in ends:
        if end is not None:
            log.close_tail(end)


def _tail_end(log: Possible, logs: Iterable[Possible]) -> int | None:
    """Behind as many entries of its epoch as it has slots; None if others do not hold so many."""
    at, epoch = log.end, log.epoch_at(log.end)
    for _ in range(log.answer.tail_slots):
        copies = ((other, other.copy_end(epoch, at)) for other in logs)
        ends = [min(end, other.epoch_end(at)) for other, end in copies if end is not None]
        if not ends:
            return None
        at = max(ends)
    return at if log.answer.tail_slots else None


def rank(log: Possible) -> tuple[int, int]:
    """By the last entry that may be held, never by the node's own epoch (rule 3)."""
    return last_epoch(clip(log.answer.history, log.may_end)), log.may_end


def decide(
    answers: Mapping[Member, FenceAnswer],
    ensembles: Sequence[Ensemble],
    policy: QuorumPolicy,
    *,
    preferred: str | None = None,
    excluded: Iterable[Member] = (),
    leaders: Mapping[str, int] = NOBODY_LEADS,
    draining: Collection[Member] = (),
    losses: Sequence[Header] = (),
) -> Decision | Waiting:
    """Choose over all answers; the leader comes from the last of `ensembles`, the final one.

    `leaders` tells how many shards each node leads already, `draining` whose nodes are to stop, and
    `losses` what need not be waited for, because a person has given it up.
    """
    if not fenced_enough(answers.keys(), ensembles, policy):
        return Waiting(None, "no fencing quorum yet", unheard(answers, ensembles))
    logs = {member: Possible(answer) for member, answer in sorted(answers.items())}
    committed = max(answer.commit for answer in answers.values())
    bound_tails(logs.values())
    while True:
        best = survivor(logs, ensembles, policy, losses)
        if isinstance(best, Waiting):
            return best
        kept = Kept(clip(best.answer.history, best.end), best.end, _head(logs.values(), best))
        leader = _leader(kept, logs, ensembles[-1], preferred, set(excluded), leaders, draining)
        if leader is None:
            members = tuple(m for m in ensembles[-1] if m not in logs or logs[m].answer.syncing)
            return Waiting(None, "no member of the final ensemble can lead yet", members)
        lacking = _matched(kept, logs[leader])
        epoch = best.epoch_at(lacking)
        if lacking >= kept.end or lacking < committed:
            break
        if not nacked(epoch, lacking, logs, ensembles, policy):
            break
        # The leader would have to fetch what was surely never committed: leave it.
        cut(logs.values(), epoch, lacking)
    others = [member for member in logs if member != leader]
    others.sort(key=lambda member: -_matched(kept, logs[member]))
    return Decision(leader, kept, tuple(others))


def fenced_enough(
    answered: Collection[Member], ensembles: Sequence[Ensemble], policy: QuorumPolicy
) -> bool:
    """A fencing quorum of every ensemble that counts; of their union would not do (rule 7)."""
    return all(reached(policy.of(len(each)).fencing, each, answered) for each in ensembles)


def unheard(answered: Collection[Member], ensembles: Sequence[Ensemble]) -> tuple[Member, ...]:
    """Who has been fenced and has not said so."""
    members = dict.fromkeys(member for each in ensembles for member in each)
    return tuple(member for member in members if member not in answered)


def _could_supply(
    epoch: int, offset: int, logs: Mapping[Member, Possible], ensembles: Sequence[Ensemble]
) -> tuple[Member, ...]:
    """Who may have the entry, or may have had it: silent, or with a slot there that is bad."""
    damaged = (member for member, log in logs.items() if not log.never_had(epoch, offset))
    return (*unheard(logs.keys(), ensembles), *damaged)


def survivor(
    logs: Mapping[Member, Possible],
    ensembles: Sequence[Ensemble],
    policy: QuorumPolicy,
    losses: Sequence[Header] = (),
) -> Possible | Waiting:
    """The best log, cut where it cannot have been committed."""
    committed = max(log.answer.commit for log in logs.values())
    while True:
        best = max(logs.values(), key=rank)
        lacking = _first_without_copy(best, logs.values(), losses)
        if lacking is None:
            return best
        epoch = best.epoch_at(lacking)
        given_up = nacked(epoch, lacking, logs, ensembles, policy) or ends_here(
            losses, epoch, lacking
        )
        if lacking < committed or not given_up:
            members = _could_supply(epoch, lacking, logs, ensembles)
            return Waiting(EntryId(epoch, lacking), "no valid copy has answered", members)
        cut(logs.values(), epoch, lacking)
        if best.open_tail or best.end > lacking:
            raise ImpossibleState("a cut that did not cut")


def cut(logs: Iterable[Possible], epoch: int, offset: int) -> None:
    """The entry (epoch, offset) was never committed: no log reaches beyond it any more."""
    for log in logs:
        if log.may_end > offset and log.epoch_at(offset) == epoch:
            log.cut(offset)


def nacked(
    epoch: int,
    offset: int,
    logs: Mapping[Member, Possible],
    ensembles: Sequence[Ensemble],
    policy: QuorumPolicy,
) -> bool:
    """Whether a nack quorum, of every ensemble, positively never had the entry (rule 13)."""
    never = {member for member, log in logs.items() if log.never_had(epoch, offset)}
    return all(reached(policy.of(len(each)).nack, each, never) for each in ensembles)


def ends_here(losses: Iterable[Header], epoch: int, offset: int) -> bool:
    """Whether all that may have stood from here on has been given up."""
    return any(not lost.count and lost.id == (epoch, offset) for lost in losses)


def reach_of_loss(losses: Iterable[Header], epoch: int, offset: int) -> int | None:
    """Where what has been given up at this offset ends; None if nothing has."""
    ends = (lost.end for lost in losses if lost.epoch == epoch and lost.base <= offset < lost.end)
    return max(ends, default=None)


def _first_without_copy(
    best: Possible, logs: Iterable[Possible], losses: Sequence[Header]
) -> int | None:
    """The first offset of the best log that no answer can supply; None if all can be had.

    What one replica has trimmed nobody needs: it was committed, and given up on purpose.
    """
    logs = tuple(logs)
    trimmed = max(log.answer.first for log in logs)
    for slot in best.slots:
        if slot.mark is Mark.PRESENT:
            continue
        offset, end = max(slot.base, trimmed), slot.end or best.may_end
        while offset < end:
            epoch = best.epoch_at(offset)
            copies = (log.copy_end(epoch, offset) for log in logs)
            reach = max((copy for copy in copies if copy is not None), default=None)
            reach = reach or reach_of_loss(losses, epoch, offset)
            if reach is None:
                return offset
            offset = reach
    return None


def _head(logs: Iterable[Possible], best: Possible) -> int:
    """The checksum of the best log's last entry, where somebody has told it; else 0."""
    if best.end == best.answer.end and best.answer.head:
        return best.answer.head
    for log in logs:
        for slot in log.slots:
            if slot.end == best.end and slot.checksum and slot.epoch == best.epoch_at(slot.base):
                return slot.checksum
    return 0


def _matched(kept: Kept, log: Possible) -> int:
    """How much of the kept log this one shares."""
    return divergence(log.answer.history, log.end, kept.history, kept.end)


def _can_be_filled(kept: Kept, log: Possible, logs: Iterable[Possible]) -> bool:
    """Whether somebody still has what this one lacks first: others may have trimmed it."""
    at = _matched(kept, log)
    return at >= kept.end or any(other.answer.first <= at < _matched(kept, other) for other in logs)


def _leader(
    kept: Kept,
    logs: Mapping[Member, Possible],
    final: Ensemble,
    preferred: str | None,
    excluded: set[Member],
    leaders: Mapping[str, int],
    draining: Collection[Member],
) -> Member | None:
    """The least work to bring up (rule 3).

    Who has committed what the kept log lacks cannot lead: a tail was given up that it has, or the
    record is of another past.  That a node is not to stop, then a hand-over, then fewer leaders,
    only break ties.
    """
    candidates = [
        member
        for member in final
        if member in logs
        and not logs[member].answer.syncing
        and _can_be_filled(kept, logs[member], logs.values())
    ]

    def merit(member: Member) -> tuple[bool, bool, int, int, bool, bool, int]:
        log = logs[member]
        matched = _matched(kept, log)
        bad = sum(1 for slot in log.slots if slot.mark is not Mark.PRESENT)
        wanted = (member not in draining, member.node == preferred, -leaders.get(member.node, 0))
        return log.answer.commit <= matched, member not in excluded, matched, -bad, *wanted

    return max(sorted(candidates), key=merit, default=None)
