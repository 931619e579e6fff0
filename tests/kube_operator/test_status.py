"""Status and conditions: what a person reads, and when it is worth a write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kube_operator.values import full, joining, member, record, report, reports, spec, swapping
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.shard import Shard, Status
from shardlog_operator.conditions import Condition, Truth, merged
from shardlog_operator.planning import Plan, Waiting
from shardlog_operator.spec import ShardSpec
from shardlog_operator.status import (
    Observed,
    Trouble,
    build,
    is_worth_writing,
    without_positions,
)

AT, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
AILING = Waiting("EntryDamaged", "entry 3:17 on a, b", stuck=True)
NO_ROOM = Waiting("VolumeFull", "no space left on the volume of c", stuck=True)
STUCK = Plan(waiting=Waiting("TooFewNodes", "there are 2", stuck=True))


def seen(
    shard: Shard | None,
    wanted: ShardSpec | None = None,
    told: list[StatusReport] | None = None,
    plan: Plan | None = None,
    **more: object,
) -> Observed:
    return Observed(wanted or spec(), shard, plan or Plan(), told, **more)  # type: ignore[arg-type]


def conditions(observed: Observed) -> dict[str, tuple[str, str]]:
    found = build(observed, {}, AT)["conditions"]
    return {each["type"]: (each["status"], each["reason"]) for each in found}


PHASES = {
    "Pending": seen(None),
    "Paused": seen(record(), spec(paused=True)),
    "Creating": seen(record(leader=None, status=Status.CREATING)),
    "Electing": seen(record(leader=None, status=Status.ELECTION)),
    "Steady": seen(record()),
    "Reconfiguring": seen(swapping("c", "d")),
    "Halted": seen(record(halted="why")),
    "Deleting": seen(record(), spec(deleting=True)),
}


@pytest.mark.parametrize("phase", PHASES)
def test_phases(phase: str):
    assert build(PHASES[phase], {}, AT)["phase"] == phase


def test_more_phases():
    assert build(seen(record(), spec(5)), {}, AT)["phase"] == "Reconfiguring"
    aborted = seen(record(), spec(5, aborted_generation=1))
    assert build(aborted, {}, AT)["phase"] == "Steady"
    assert build(seen(None, spec(paused=True)), {}, AT)["phase"] == "Paused"
    assert build(seen(joining("d"), spec(paused=True)), {}, AT)["phase"] == "Reconfiguring"


CONDITIONS = {
    "all is well": (
        seen(record(), told=reports()),
        {"Ready": ("True", "AsWanted"), "Available": ("True", "LeaderServes"),
         "FullyReplicated": ("True", "AllCaughtUp"), "Reconfiguring": ("False", "NoChange")},
    ),
    "a follower lags": (
        seen(record(), told=reports(acked_c=3)),
        {"Ready": ("True", "AsWanted"), "FullyReplicated": ("False", "ReplicasBehind")},
    ),
    "a follower lags no more than the writes do": (
        seen(record(), told=reports(acked_c=8), committed_before=7),
        {"FullyReplicated": ("True", "AllCaughtUp")},
    ),
    "a follower has lost its disk": (
        seen(record(), told=[report("a", "LEADER", acked={"b": 10, "c": 10}, lost="c")]),
        {"FullyReplicated": ("False", "ReplicasBehind")},
    ),
    "nobody follows": (
        seen(record(), told=[report("a", "LEADER")]),
        {"FullyReplicated": ("False", "ReplicasBehind")},
    ),
    "the leader hears no quorum": (
        seen(record(), told=[report("a", "LEADER", serving=False)]),
        {"Ready": ("False", "NoQuorum"), "Available": ("False", "NoQuorum")},
    ),
    "the leader does not answer": (
        seen(record(), told=[report("b"), report("c")]),
        {"Ready": ("Unknown", "NoAnswer"), "Available": ("Unknown", "NoAnswer"),
         "FullyReplicated": ("Unknown", "NoAnswer")},
    ),
    "it has not heard that it leads": (
        seen(record(), told=[report("a", "FENCED")]), {"Available": ("Unknown", "NoAnswer")},
    ),
    "nobody was asked": (seen(record()), {"Available": ("Unknown", "NoAnswer")}),
    "an election": (
        seen(record(leader=None, status=Status.ELECTION), election_waits="(3, 7) on b"),
        {"Ready": ("False", "Electing"), "Available": ("False", "Electing")},
    ),
    "an election waits for an entry": (
        seen(record(leader=None, status=Status.ELECTION), ailments=(AILING,)),
        {"Ready": ("False", "EntryDamaged"), "Available": ("False", "EntryDamaged"),
         "FullyReplicated": ("False", "EntryDamaged")},
    ),
    "an entry is bad on every node": (
        seen(record(), told=reports(), ailments=(AILING,)),
        {"Ready": ("False", "EntryDamaged"), "Available": ("True", "LeaderServes"),
         "FullyReplicated": ("False", "EntryDamaged")},
    ),
    "a follower has no room": (
        seen(record(), told=full("c", reports(acked_c=3)), ailments=(NO_ROOM,)),
        {"Ready": ("False", "VolumeFull"), "Available": ("True", "LeaderServes"),
         "FullyReplicated": ("False", "VolumeFull")},
    ),
    "nor has a quorum": (
        seen(record(), told=full("bc", reports(3, 3)), ailments=(NO_ROOM,)),
        {"Ready": ("False", "VolumeFull"), "Available": ("False", "VolumeFull")},
    ),
    "one that joins has no room": (
        seen(joining("d"), spec(4), reports(), ailments=(NO_ROOM,)),
        {"Ready": ("False", "VolumeFull"), "FullyReplicated": ("False", "TooFewReplicas")},
    ),
    "one that takes another's place has no room": (
        seen(joining("d", "c"), told=reports(), ailments=(NO_ROOM,)),
        {"Ready": ("False", "VolumeFull"), "FullyReplicated": ("True", "AllCaughtUp")},
    ),
    "cannot be placed": (
        seen(None, plan=STUCK),
        {"Ready": ("False", "TooFewNodes"), "Available": ("False", "NotCreated"),
         "FullyReplicated": ("False", "NotCreated")},
    ),
    "cannot be scaled": (
        seen(record(), spec(5), reports(), STUCK),
        {"Ready": ("False", "TooFewNodes"), "Available": ("True", "LeaderServes"),
         "FullyReplicated": ("False", "TooFewReplicas")},
    ),
    "scaled": (
        seen(record(), spec(5), reports()),
        {"Ready": ("False", "Scaling"), "FullyReplicated": ("False", "TooFewReplicas")},
    ),
    "swapped": (
        seen(swapping("c", "d"), told=reports()),
        {"Ready": ("True", "AsWanted"), "Reconfiguring": ("True", "Swap")},
    ),
    "somebody joins": (
        seen(joining("d"), spec(4), reports()), {"Reconfiguring": ("True", "Expand")},
    ),
    "aborted": (
        seen(record(), spec(5), reports(), Plan(waiting=Waiting("Aborted", "it was"))),
        {"Ready": ("False", "Aborted"), "Reconfiguring": ("False", "Aborted")},
    ),
    "halted": (
        seen(record(halted="b leads others"), told=reports()),
        {"Ready": ("False", "Halted"), "Halted": ("True", "Halted"),
         "Available": ("True", "LeaderServes")},
    ),
    "deleted": (
        seen(record(), spec(deleting=True), reports()), {"Ready": ("False", "Deleting")},
    ),
    "a newer record": (
        seen(None, trouble=Trouble("NewerRecord", "format 2 is newer")),
        {"Ready": ("Unknown", "NewerRecord"), "Available": ("Unknown", "NewerRecord")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONDITIONS)
def test_conditions(case: str):
    observed, wanted = CONDITIONS[case]
    found = conditions(observed)
    assert wanted.items() <= found.items()
    assert ("Halted" in found) == (case == "halted")


def test_the_whole_status():
    assert build(seen(record(), told=reports(acked_c=4), selector="x=y"), {}, AT) == {
        "observedGeneration": 1,
        "phase": "Steady",
        "selector": "x=y",
        "epoch": 4,
        "replicas": 3,
        "leader": "a",
        "commitOffset": 10,
        "history": [{"epoch": 1, "first": 0}, {"epoch": 4, "first": 7}],
        "ensemble": [
            {"node": "a", "role": "Leader", "incarnation": "1", "state": "Leader", "head": 10,
             "commit": 10, "lag": 0},
            {"node": "b", "role": "Follower", "incarnation": "1", "state": "Follower", "head": 10,
             "commit": 10, "lag": 0},
            {"node": "c", "role": "Follower", "incarnation": "1", "state": "Follower", "head": 4,
             "commit": 10, "lag": 6},
        ],
        "conditions": build(seen(record(), told=reports(acked_c=4)), {}, AT)["conditions"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shard", "wanted"),
    [
        (swapping("c", "d"),
         {"operation": "Swap", "phase": "Prepare", "oldNode": "c", "newNode": "d"}),
        (joining("d"), {"operation": "Expand", "phase": "Joining", "newNode": "d"}),
        (joining("d", "c", cancelled=True),
         {"operation": "Swap", "phase": "Cancelled", "oldNode": "c", "newNode": "d"}),
    ],
)  # fmt: skip
def test_a_change_is_told(shard: Shard, wanted: dict[str, str]):
    assert build(seen(shard), {}, AT)["reconfiguration"] == wanted


def test_who_comes_and_goes_is_told():
    told = build(seen(swapping("c", "d")), {}, AT)["ensemble"]
    assert [(each["node"], each["role"]) for each in told] == [
        ("a", "Leader"), ("b", "Follower"), ("c", "Leaving"), ("d", "Standby"),
    ]  # fmt: skip
    told = build(seen(record(removed=(member("e"),))), {}, AT)["ensemble"]
    assert (told[-1]["node"], told[-1]["role"]) == ("e", "Leaving")


def test_an_ailment_is_told_with_its_entry_and_its_nodes():
    status = build(seen(record(), told=reports(), ailments=(AILING, NO_ROOM)), {}, AT)
    told = {each["type"]: each["message"] for each in status["conditions"]}
    assert told["Ready"] == told["FullyReplicated"] == status["waitingFor"] == AILING.message


def test_a_member_without_room_says_so_rather_than_that_it_hands_over():
    told = [replace(each, draining=each.full) for each in full("c", reports(acked_c=3))]
    members = build(seen(record(), told=told, ailments=(NO_ROOM,)), {}, AT)["ensemble"]
    assert [each["state"] for each in members] == ["Leader", "Follower", "Full"]


def test_waiting_for_is_what_stands_in_the_way():
    assert build(seen(None, plan=STUCK), {}, AT)["waitingFor"] == "there are 2"
    electing = record(leader=None, status=Status.ELECTION)
    told = build(seen(electing, plan=STUCK, election_waits="(3, 7) on b"), {}, AT)
    assert told["waitingFor"] == "(3, 7) on b"
    assert "waitingFor" not in build(seen(record()), {}, AT)


def test_what_cannot_be_read_leaves_the_rest_as_it_was():
    before = build(seen(record(), told=reports(), plan=STUCK), {}, AT)
    trouble = Trouble("MetadataUnavailable", "no answer")
    told = build(seen(None, trouble=trouble), before, LATER)
    assert told["leader"] == "a"
    assert told["phase"] == "Steady"
    assert told["waitingFor"] == "no answer"


def test_positions_of_the_epoch_are_kept_while_the_leader_is_silent():
    before = build(seen(record(), told=reports()), {}, AT)
    told = build(seen(record(), told=[]), before, LATER)
    assert told["commitOffset"] == 10
    assert told["history"] == before["history"]


# --- writes --------------------------------------------------------------------------------------


def test_an_idle_shard_is_not_written():
    before = build(seen(record(), told=reports()), {}, AT)
    again = build(seen(record(), told=reports()), before, LATER)
    assert not is_worth_writing(before, again, positions_due=True)


def test_positions_alone_wait():
    before = build(seen(record(), told=reports()), {}, AT)
    leader = report("a", "LEADER", end=20, commit=20, acked={"b": 20, "c": 20})
    later = build(
        seen(record(), told=[leader, report("b", end=20), report("c", end=20)]), before, LATER
    )
    assert not is_worth_writing(before, later, positions_due=False)
    assert is_worth_writing(before, later, positions_due=True)
    assert without_positions(before) == without_positions(later)


def test_anything_else_does_not():
    before = build(seen(record(), told=reports()), {}, AT)
    for other in (
        seen(record(leader="b"), told=reports()),
        seen(record(), told=reports(acked_c=2)),
        seen(record("abcd"), told=reports()),
        seen(record(), told=reports(), plan=STUCK),
    ):
        assert is_worth_writing(before, build(other, before, LATER), positions_due=False)


# --- conditions ----------------------------------------------------------------------------------


def test_the_time_of_a_condition_changes_with_its_status_alone():
    first = merged([], [Condition("Ready", Truth.FALSE, "Creating")], 1, AT)
    same = merged(first, [Condition("Ready", Truth.FALSE, "Electing", "epoch 1")], 2, LATER)
    assert same[0] == {
        "type": "Ready", "status": "False", "reason": "Electing", "message": "epoch 1",
        "observedGeneration": 2, "lastTransitionTime": AT,
    }  # fmt: skip
    other = merged(same, [Condition("Ready", Truth.TRUE, "AsWanted")], 2, LATER)
    assert other[0]["lastTransitionTime"] == LATER


def test_a_condition_that_is_not_told_is_gone():
    first = merged([], [Condition("Halted", Truth.TRUE, "Halted")], 1, AT)
    assert merged(first, [], 1, LATER) == []


@pytest.mark.parametrize(("holds", "truth"), [(True, "True"), (False, "False"), (None, "Unknown")])
def test_truth(holds: bool | None, truth: str):
    assert Truth.of(holds) == truth


def test_reasons_are_words_without_blanks():
    for observed, _ in CONDITIONS.values():
        for each in build(observed, {}, AT)["conditions"]:
            assert each["reason"].isalpha()
            assert each["reason"][0].isupper()
