"""Elections, as the coordinator drives them.

Metadata first, then fence, then a quorum, then choose, then BecomeLeader, then metadata again.  An
election is never resumed: whoever finds one that is not its own, or gives its own up, starts over
in a new epoch, because two coordinators that finish the same epoch would make two leaders.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardlog.protocol import choice, contradiction, stakes
from shardlog.protocol.choice import Decision, Waiting
from shardlog.protocol.coordinator_state import CoordinatorState, Election, Intent, changed
from shardlog.protocol.entry import EntryId, Member
from shardlog.protocol.history import EPOCH_MAX, same_election
from shardlog.protocol.messages import (
    AddFollower,
    BecameLeader,
    BecomeLeader,
    CannotServe,
    Envelope,
    Fence,
    FenceAnswer,
)
from shardlog.protocol.shard import Joining, Phase, Shard, Status


def start(
    c: CoordinatorState,
    record: Shard,
    *,
    preferred: str | None = None,
    above: int = 0,
    accepting: EntryId | None = None,
) -> None:
    """A new epoch, written first.  A change in PREPARE is given up with it (rule 9)."""
    reported = (each.report.epoch for each in c.seen.values())
    epoch = max(record.epoch, above, *(each for each in reported if each < EPOCH_MAX)) + 1
    fields = {"status": Status.ELECTION, "epoch": epoch, "leader": None, "preferred": preferred}
    fields["election"] = c.next_election()
    if accepting is not None:
        fields["accepting"] = accepting
    if record.change and record.phase is Phase.PREPARE:
        fields |= {"change": None, "phase": None, "joining": resumed(record)}
        fields["changed_in"] = record.epoch
    c.write(changed(record, **fields), Intent.ELECT)


def resumed(record: Shard) -> Joining | None:
    """After a PREPARE is given up the new node is a standby again, and may be tried once more."""
    change = record.change
    if change is None or change.new is None:
        return record.joining
    return Joining(change.operation, change.old, change.new.node, change.new.incarnation)


def begun(c: CoordinatorState, record: Shard) -> None:
    """Our write of a new epoch stands: this election is ours."""
    c.forget()
    c.election = Election(record.epoch, c.now_ms)


def drive(c: CoordinatorState, record: Shard) -> None:
    election = c.election
    if not owns(c, record) or election is None:
        if c.now_ms - c.changed_ms >= c.limits.election_timeout_ms:
            start(c, record, preferred=record.preferred)
        return
    due = election.sent_ms < 0 or c.now_ms - election.sent_ms >= c.limits.resend_ms
    if due:
        election.sent_ms = c.now_ms
        for member in record.fencing_ensemble:
            if member not in election.answers:
                c.send(member, Fence(record.epoch, record.election))
    if election.asked is None:
        _choose(c, record, election)
    elif c.now_ms - election.started_ms >= c.limits.election_timeout_ms:
        # Chosen, and silent: somebody else next time.
        _exclude(c, record, election.asked[0])
        start(c, record, preferred=record.preferred)
    elif due:
        c.send(*election.asked)


def owns(c: CoordinatorState, record: Shard) -> bool:
    """Only the coordinator that wrote an epoch may finish its election (rule 1)."""
    return c.election is not None and c.election.epoch == record.epoch


def may_be_given_up(record: Shard, entry: EntryId) -> bool:
    """Only by the word of people, who named just this entry."""
    return record.accepting == entry


def _give_up(c: CoordinatorState, record: Shard, election: Election, entry: EntryId) -> None:
    """Write down what is lost, once everyone in reach has had the time to answer."""
    if c.writing or c.now_ms - election.started_ms < 2 * c.limits.resend_ms:
        return
    lost = stakes.loss_of(entry, election.answers)
    if lost is not None:
        # The log goes on behind what was taken for its tail when that was given up.
        others = tuple(each for each in record.losses if each.count or each.id != lost.id)
        c.write(changed(record, losses=(*others, lost), accepting=None))


def _decided(c: CoordinatorState, record: Shard, election: Election) -> Decision | Waiting:
    """Over all answers; but those who have just failed to lead are asked last.

    A leader that was cut off from its followers, and not from us, answers first and has the longest
    log: it would be chosen again, or somebody who then cannot fetch from it.  What it alone has was
    never committed, so the others decide if they are a fencing quorum.  They, and the target of a
    hand-over (rule 11), are given a moment to answer, but not for ever.
    """
    answers = election.answers
    late = c.now_ms - election.started_ms >= c.limits.resend_ms
    wanted = [member for member in record.final_ensemble if member.node == record.preferred]
    if wanted and wanted[0] not in answers and not late:
        return Waiting(None, f"{record.preferred} is to lead and has not answered", (wanted[0],))
    others = {member: answers[member] for member in answers if member not in c.excluded}
    if len(others) < len(answers):
        decision = _decide(c, record, others)
        if isinstance(decision, Decision) or not late:
            return decision
    return _decide(c, record, answers)


def _decide(
    c: CoordinatorState, record: Shard, answers: Mapping[Member, FenceAnswer]
) -> Decision | Waiting:
    return choice.decide(
        answers,
        record.ensembles,
        record.quorum,
        preferred=record.preferred,
        excluded=c.excluded,
        leaders=c.leaders,
        draining=c.draining,
        losses=record.losses,
    )


def _exclude(c: CoordinatorState, record: Shard, member: Member) -> None:
    """Somebody else next time; once all in reach have failed, all but the last may try again."""
    c.excluded = tuple(dict.fromkeys((*c.excluded, member)))
    answered = c.election.answers if c.election else {}
    if all(each in c.excluded for each in record.final_ensemble if each in answered):
        c.excluded = (member,)


def _choose(c: CoordinatorState, record: Shard, election: Election) -> None:
    decision = _decided(c, record, election)
    if isinstance(decision, Waiting):
        election.waiting = decision
        if decision.entry is not None and may_be_given_up(record, decision.entry):
            _give_up(c, record, election, decision.entry)
        return
    final = record.final_ensemble
    followers = tuple(
        election.answers[member]
        for member in final
        if member in election.answers and member != decision.leader
    )
    message = BecomeLeader(
        record.epoch,
        final,
        record.quorum,
        decision.kept,
        decision.sources,
        followers,
        record.losses,
        record.election,
        stakes.found(record.losses, election.answers),
    )
    election.asked = (decision.leader, message)
    election.started_ms = c.now_ms
    election.waiting = None
    c.send(decision.leader, message)


def answered(c: CoordinatorState, record: Shard, answer: FenceAnswer) -> None:
    """A fence answer: to an election, late or not, or to the fence of a member without a cursor."""
    if answer.epoch != record.epoch or not same_election(answer.election, record.election):
        return
    why = contradiction.of_answer(record, answer)
    if why is not None:
        contradiction.halt(c, record, why)
    elif record.status is Status.ELECTION:
        if c.election and owns(c, record) and answer.member in record.fencing_ensemble:
            c.election.answers[answer.member] = answer
            drive_now(c, record)
    elif record.status is Status.STEADY and record.leader and answer.member != record.leader:
        add_late(c, record, answer)


def drive_now(c: CoordinatorState, record: Shard) -> None:
    if c.election and c.election.asked is None and not c.writing:
        _choose(c, record, c.election)


def add_late(c: CoordinatorState, record: Shard, answer: FenceAnswer) -> None:
    """Late fencers, members that come back, and standbys join by AddFollower."""
    joining = record.joining.member if record.joining else None
    new = record.change.new if record.change else None
    if record.leader is None:
        return
    if answer.member in record.ensemble or answer.member == new:
        c.send(record.leader, AddFollower(record.epoch, answer, standby=False))
    elif answer.member == joining:
        c.send(record.leader, AddFollower(record.epoch, answer, standby=True))


def became(c: CoordinatorState, record: Shard, envelope: Envelope, message: BecameLeader) -> None:
    """The leader leads: write it down, with a change in COMMIT completed."""
    election = c.election
    leader = Member(envelope.src, envelope.src_incarnation)
    if election is None or not owns(c, record) or record.status is not Status.ELECTION:
        return
    if message.epoch != record.epoch or election.asked is None or election.asked[0] != leader:
        return
    gone = [each for each in record.fencing_ensemble if each not in record.final_ensemble]
    c.excluded = ()
    c.write(
        changed(
            record,
            status=Status.STEADY,
            leader=leader,
            ensemble=record.final_ensemble,
            change=None,
            phase=None,
            preferred=None,
            accepting=None,
            losses=tuple(each for each in record.losses if each.id not in message.needless),
            removed=(*record.removed, *gone),
            changed_in=record.epoch if record.change else record.changed_in,
        )
    )


def finished(c: CoordinatorState, record: Shard, election: Election) -> None:
    """Steady again: those who answered after the choice was made are added now (O2)."""
    chosen = {answer.member for answer in election.asked[1].followers} if election.asked else set()
    for member, answer in election.answers.items():
        if member not in chosen and member != record.leader:
            add_late(c, record, answer)


def cannot_serve(
    c: CoordinatorState, record: Shard, envelope: Envelope, message: CannotServe
) -> None:
    """The chosen one cannot repair what it must keep: another one, in a new epoch (T13)."""
    asked = c.election.asked if c.election and owns(c, record) else None
    sender = Member(envelope.src, envelope.src_incarnation)
    entitled = sender == record.leader or (asked is not None and asked[0] == sender)
    if message.epoch == record.epoch and entitled and not c.writing:
        _exclude(c, record, sender)
        start(c, record, preferred=record.preferred)
