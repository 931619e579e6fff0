"""ShardOperations judged by the record alone, so that any operator may go on with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kube_operator.values import joining, places, record, situation, spec, swapping
from shardlog.protocol.coordination import AbortChange, AcceptLoss, Promote, Swap
from shardlog.protocol.entry import EntryId
from shardlog.protocol.messages import Operation as Change
from shardlog.protocol.messages import Reconfiguration
from shardlog.protocol.shard import Phase, Shard, Status
from shardlog_operator.deleting import ending
from shardlog_operator.operations import BEGUN_AGAIN_MAX, PATIENCE_S, Past, judge, judge_drain
from shardlog_operator.spec import (
    Deletion,
    Operation,
    OperationPhase,
    OperationSpec,
    ShardSpec,
    operation_spec,
)

PENDING, RUNNING = OperationPhase.PENDING, OperationPhase.RUNNING
DONE, FAILED = OperationPhase.SUCCEEDED, OperationPhase.FAILED


def asked(operation: Operation, **fields: object) -> OperationSpec:
    return OperationSpec("op", "uid", 1, operation, "orders", **fields)  # type: ignore[arg-type]


def promote(node: str) -> OperationSpec:
    return asked(Operation.PROMOTE, node=node)


def swap(old: str, new: str | None = None, **fields: object) -> OperationSpec:
    return asked(Operation.SWAP, old=old, new=new, **fields)


def abort(**fields: object) -> OperationSpec:
    return asked(Operation.ABORT, **fields)


ELECTING = record(leader=None, status=Status.ELECTION)
CONTRACTING = record(
    change=Reconfiguration(Change.CONTRACT, (), record().ensemble[2], None), phase=Phase.PREPARE
)

CASES = {
    "promote": (promote("b"), record(), spec(), RUNNING, Promote("b")),
    "it leads": (promote("a"), record(), spec(), DONE, None),
    "a stranger": (promote("z"), record(), spec(), FAILED, None),
    "promote waits for an election": (promote("b"), ELECTING, spec(), RUNNING, None),
    "promote waits for a change": (promote("b"), swapping("c", "d"), spec(), RUNNING, None),
    "promote waits for a pause": (promote("b"), record(), spec(paused=True), RUNNING, None),
    "swap": (swap("c", "d"), record(), spec(), RUNNING, Swap("c", "d")),
    "swap for whom the operator chooses": (swap("c"), record(), spec(), RUNNING, Swap("c", "d")),
    "swap of the leader": (swap("a", "d"), record(), spec(), RUNNING, Swap("a", "d")),
    "swap is under way": (swap("c", "d"), swapping("c", "d"), spec(), RUNNING, None),
    "somebody joins for it": (swap("c", "d"), joining("d", "c"), spec(), RUNNING, None),
    "another swap is under way": (swap("b", "d"), swapping("c", "e"), spec(), RUNNING, None),
    "it moves elsewhere": (swap("c", "d"), swapping("c", "e"), spec(), RUNNING, None),
    "it has moved elsewhere": (swap("c", "d", phase=RUNNING), record("abe"), spec(), FAILED, None),
    "it is made again where it is": (swap("c", "d"), joining("c", "c"), spec(), RUNNING, None),
    "a contract is under way": (swap("b", "d"), CONTRACTING, spec(), RUNNING, None),
    "swapped": (swap("c", "d", started=True), record("abd"), spec(), DONE, None),
    "swapped before anybody looked": (swap("c", "d"), record("abd"), spec(), DONE, None),
    "swapped for whom the operator chose": (
        swap("c", started=True), record("abd"), spec(), DONE, None,
    ),
    "swapped by an operator that was killed": (
        swap("c", phase=RUNNING), record("abd"), spec(), DONE, None,
    ),
    "not a member": (swap("z", "d"), record(), spec(), FAILED, None),
    "a member already": (swap("c", "b"), record(), spec(), FAILED, None),
    "no such node": (swap("c", "z"), record(), spec(), FAILED, None),
    "given up": (swap("c", "d", started=True), record(), spec(), RUNNING, Swap("c", "d")),
    "given up, and sent away": (
        swap("c", "d", started=True), joining("d", "c", cancelled=True), spec(), RUNNING, None,
    ),
    "the only replica": (swap("a", "d"), record("a"), spec(1), FAILED, None),
    "abort": (abort(), swapping("c", "d"), spec(), RUNNING, AbortChange()),
    "abort of a join": (abort(), joining("d"), spec(4), RUNNING, AbortChange()),
    "aborted": (abort(started=True), record(), spec(), DONE, None),
    "aborted, and sent away": (
        abort(started=True), joining("d", cancelled=True), spec(), DONE, None,
    ),
    "abort between two steps": (abort(), record(), spec(5), RUNNING, None),
    "aborted between two steps": (
        abort(started=True), record(), spec(5, aborted_generation=1), DONE, None,
    ),
    "too late": (abort(), swapping("c", "d", Phase.COMMIT), spec(), FAILED, None),
    "nothing to abort": (abort(), record(), spec(), FAILED, None),
    "halted": (promote("b"), record(halted="why"), spec(), FAILED, None),
    "deleted": (promote("b"), record(), spec(deleting=True), FAILED, None),
    "not created yet": (promote("b"), None, spec(), RUNNING, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_judged(case: str):
    operation, shard, wanted, phase, command = CASES[case]
    found = judge(operation, situation(shard, wanted, places()), Past())
    assert (found.phase, found.command) == (phase, command)
    assert found.message


@pytest.mark.parametrize(
    ("shard", "named", "unnamed"),
    [
        (joining("d", "c"), True, True),
        (swapping("c", "d"), True, True),
        (swapping("c", "e"), False, True),
        (joining("c", "c"), False, False),
        (swapping("b", "d"), False, False),
    ],
)
def test_only_the_swap_that_was_asked_for_is_seen_under_way(
    shard: Shard, named: bool, unnamed: bool
):
    stands = situation(shard, spec(), places())
    assert judge(swap("c", "d"), stands, Past()).started is named
    assert judge(swap("c"), stands, Past()).started is unnamed


@pytest.mark.parametrize(
    ("past", "told"),
    [(Past(aborted=True), "aborted"), (Past(begun_again=BEGUN_AGAIN_MAX), "given up 4 times")],
)
def test_a_swap_is_not_begun_again_for_ever_nor_against_a_word(past: Past, told: str):
    stands = situation(record(), spec(), places())
    found = judge(swap("c", "d", started=True), stands, past)
    assert found.phase is FAILED
    assert told in found.message
    # What was aborted before was something else.
    assert judge(swap("c", "d"), stands, past).command == Swap("c", "d")


ENTRY = EntryId(3, 9)
LOSS = asked(Operation.ACCEPT_LOSS, entry=(3, 9))
BEGUN = asked(Operation.ACCEPT_LOSS, entry=(3, 9), started=True, phase=RUNNING)

LOSSES = {
    "it waits for just that": (LOSS, ELECTING, ENTRY, 0.0, RUNNING, AcceptLoss(ENTRY)),
    "it serves, and waits for a repair": (LOSS, record(), ENTRY, 0.0, RUNNING, AcceptLoss(ENTRY)),
    "halted shards too": (LOSS, record(halted="why"), ENTRY, 0.0, RUNNING, AcceptLoss(ENTRY)),
    "it is being given up": (BEGUN, record(accepting=ENTRY), ENTRY, 0.0, RUNNING, None),
    "given up": (BEGUN, record(), None, 0.0, DONE, None),
    "given up, and the election is under way": (BEGUN, ELECTING, None, 0.0, RUNNING, None),
    "it waits for another": (LOSS, ELECTING, EntryId(3, 8), 0.0, FAILED, None),
    "it waits for nothing": (LOSS, record(), None, 0.0, FAILED, None),
    "nobody knows yet": (LOSS, ELECTING, None, 0.0, RUNNING, None),
    "nobody ever knows": (LOSS, ELECTING, None, PATIENCE_S, FAILED, None),
}


@pytest.mark.parametrize("case", LOSSES)
def test_a_loss_is_accepted_only_where_it_is_waited_for(case: str):
    operation, shard, awaited, elapsed_s, phase, command = LOSSES[case]
    stands = replace(situation(shard, spec(paused=True), places()), awaited=awaited)
    found = judge(operation, stands, Past(elapsed_s))
    assert (found.phase, found.command) == (phase, command)


def test_no_such_shard():
    assert judge(promote("b"), None, Past()).phase is FAILED


def test_a_promotion_is_not_waited_for_without_end():
    found = judge(promote("b"), situation(record(), spec(), places()), Past(PATIENCE_S))
    assert found.phase is FAILED
    assert "caught up" in found.message


@pytest.mark.parametrize(
    ("shard", "wanted", "bounded"),
    [
        (record(), spec(), True),
        (ELECTING, spec(), False),
        (swapping("c", "d"), spec(), False),
        (record(), spec(paused=True), False),
        (None, spec(), False),
    ],
)
def test_what_it_waits_for_takes_its_time(shard: Shard | None, wanted: ShardSpec, bounded: bool):
    for operation in (promote("b"), swap("b", "d")):
        found = judge(operation, situation(shard, wanted, places()), Past())
        assert (found.phase, found.bounded) == (RUNNING, bounded)


def test_whether_a_loss_is_waited_for_only_the_leader_can_say():
    unheard = replace(situation(record(), spec(), places()), heard=False)
    for operation in (LOSS, BEGUN):
        found = judge(operation, unheard, Past())
        assert (found.phase, found.command, found.bounded) == (RUNNING, None, True)


def test_an_abort_gives_up_the_scaling_too():
    for shard in (joining("d"), record()):
        assert judge(abort(), situation(shard, spec(5), places()), Past()).give_up_scaling
    assert not judge(
        abort(), situation(swapping("c", "d"), spec(3), places()), Past()
    ).give_up_scaling


def test_a_swap_waits_for_a_node():
    found = judge(swap("c"), situation(record(), spec(), places("abc")), Past())
    assert (found.phase, found.command) == (RUNNING, None)


@pytest.mark.parametrize(
    ("shards", "phase"),
    [
        ([], DONE),
        ([record("abc")], RUNNING),
        ([record("bcd")], DONE),
        ([joining("a", nodes="bcd")], RUNNING),
        ([record("bcd", "b", removed=record("a").ensemble)], RUNNING),
    ],
)
def test_a_drain_lasts_until_nothing_is_left(shards: list[Shard], phase: OperationPhase):
    assert judge_drain(OperationSpec("op", "", 1, Operation.DRAIN, node="a"), shards).phase is phase


def test_a_drain_waits_for_records_that_cannot_be_read():
    drain = OperationSpec("op", "", 1, Operation.DRAIN, node="a")
    found = judge_drain(drain, [record("bcd")], {"events": "of a newer version"})
    assert found.phase is RUNNING
    assert "events" in found.message


def test_how_far_it_is_stands_in_its_status():
    body = {
        "metadata": {"name": "op", "uid": "u"},
        "spec": {"operation": "AcceptLoss", "shard": "s", "entry": {"epoch": 3, "offset": 9}},
        "status": {"phase": "Running", "conditions": [{"type": "Started", "status": "True"}]},
    }
    found = operation_spec(body)
    assert (found.phase, found.started, found.entry, found.ended) == (RUNNING, True, (3, 9), False)


# --- deletion ------------------------------------------------------------------------------------

DELETE, RETAIN = spec(deletion=Deletion.DELETE), spec(deletion=Deletion.RETAIN)
DYING = record(leader=None, status=Status.DELETING, removed=record().ensemble)


@pytest.mark.parametrize(
    ("wanted", "shard", "done", "command", "waits"),
    [
        (RETAIN, record(), True, False, False),
        (RETAIN, ELECTING, True, False, False),
        (RETAIN, record(halted="why"), True, False, False),
        (RETAIN, None, True, False, False),
        (DELETE, None, True, False, False),
        (DELETE, record(), False, True, False),
        (DELETE, swapping("c", "d"), False, True, False),
        (DELETE, DYING, False, False, True),
        (DELETE, record(halted="why"), False, False, True),
    ],
)
def test_the_end(wanted: ShardSpec, shard: Shard | None, done: bool, command: bool, waits: bool):
    found = ending(wanted, shard, places("abc"))
    assert (found.done, found.command is not None, found.waiting is not None) == (
        done, command, waits,
    )  # fmt: skip


def test_a_deletion_says_whom_it_waits_for():
    waiting = ending(DELETE, DYING, places("abc", lost={"b": 99.0})).waiting
    assert waiting is not None
    assert waiting.message == "replicas are destroyed on a, b, c"


def test_a_deletion_does_not_wait_for_nodes_that_are_lost():
    left = replace(DYING, removed=DYING.removed[1:2])
    assert not ending(DELETE, left, places("abc", lost={"b": 1.0})).done
    end = ending(DELETE, left, places("abc", lost={"b": 99.0}))
    assert (end.done, end.reason) == (True, "Deleted")
    assert "on b" in end.message
