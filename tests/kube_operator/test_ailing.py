"""What is wrong with data and volumes: who is named, and when it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kube_operator.values import full, joining, members, record, reports
from shardlog.protocol.choice import Waiting as Awaited
from shardlog.protocol.entry import EntryId
from shardlog.protocol.shard import Shard, Status
from shardlog_operator.ailing import ailments, news
from shardlog_operator.planning import Waiting

ELECTING = record(leader=None, status=Status.ELECTION)
CREATING = record(leader=None, status=Status.CREATING)
ENTRY = Awaited(EntryId(3, 17), "nobody has it", members("ab"))
NO_QUORUM = Awaited(None, "no fencing quorum yet", members("bc"))
UNMADE = Awaited(None, "no space left on the volume", members("c"))


AWAITED = Waiting("EntryAwaited", "nobody has it: entry 3:17 on a, b", stuck=True)
DAMAGED = replace(AWAITED, reason="EntryDamaged")
FULL_C = Waiting("VolumeFull", "no space left on the volume of c", stuck=True)

FOUND: dict[str, tuple[Shard | None, Awaited | None, str, tuple[Waiting, ...]]] = {
    "nothing": (record(), None, "", ()),
    "no shard": (None, None, "", ()),
    "an entry is bad everywhere": (record(), ENTRY, "", (DAMAGED,)),
    "an election waits for it": (ELECTING, ENTRY, "", (AWAITED,)),
    "an election waits for members": (ELECTING, NO_QUORUM, "", ()),
    "a member cannot write": (record(), None, "c", (FULL_C,)),
    "an election that began a moment ago does": (CREATING, NO_QUORUM, "", ()),
    "a replica cannot be made": (CREATING, UNMADE, "", (FULL_C,)),
    "nor one that joins": (joining("c", nodes="ab"), UNMADE, "", (FULL_C,)),
    "both": (record(), ENTRY, "c", (DAMAGED, FULL_C)),
    "it is deleted": (record(status=Status.DELETING), ENTRY, "c", ()),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_is_found(case: str):
    shard, waiting, nodes, wanted = FOUND[case]
    assert ailments(shard, waiting, full(nodes, reports()), ()) == wanted


def test_an_election_begun_anew_waits_for_the_same_until_it_knows():
    assert ailments(ELECTING, None, (), (AWAITED, FULL_C)) == (AWAITED,)
    assert ailments(ELECTING, NO_QUORUM, (), (AWAITED,)) == ()
    assert ailments(record(), None, reports(), (AWAITED,)) == ()


def test_every_node_without_room_is_named():
    (found,) = ailments(record(), None, full("ca", reports()), ())
    assert found.message == "no space left on the volume of a, c"


def test_each_is_told_once_and_again_if_it_changes():
    told, known = news(record(), (), (DAMAGED, FULL_C))
    assert [(each.reason, each.message, each.warning) for each in told] == [
        ("EntryDamaged", DAMAGED.message, True),
        ("VolumeFull", FULL_C.message, True),
    ]
    assert news(record(), known, (DAMAGED, FULL_C)) == ([], known)
    other = replace(FULL_C, message="no space left on the volume of b, c")
    told, known = news(record(), known, (DAMAGED, other))
    assert [each.message for each in told] == [other.message]
    assert known == (DAMAGED, other)


def test_it_is_over_when_a_leader_serves_and_not_before():
    told, known = news(ELECTING, (AWAITED,), ())
    assert (told, known) == ([], (AWAITED,))
    told, known = news(record(), known, ())
    assert [(each.reason, each.warning) for each in told] == [("GoesOn", False)]
    assert AWAITED.message in told[0].message
    assert known == ()
