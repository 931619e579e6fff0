"""The traces of PROTOCOL.md, step by step, over real replicas."""

import pytest

from protocol.cluster import Cluster
from protocol.harness import Node
from shardlog.protocol import following, leading
from shardlog.protocol.history import History, clip, last_epoch, written
from shardlog.protocol.messages import AddFollower


def ids(node: Node) -> list[str]:
    return [str(header.id) for header in node.replica.log.headers]


def oxia(mine: History, mine_end: int, theirs: History, theirs_end: int) -> int:
    """The seed's rule: keep up to the leader's last entry at or below the own last epoch."""
    head = last_epoch(clip(mine, mine_end))
    later = [span.first for span in clip(theirs, theirs_end) if span.epoch > head]
    return min([mine_end, theirs_end, *later])


def until_a_answers_late() -> tuple[Cluster, Node, Node]:
    """Steps 1 to 4; the epoch-start entries are the writes."""
    cluster = Cluster()
    cluster.create()
    a, b, _ = cluster.nodes.values()
    cluster.part("a", "b", "c")
    assert cluster.elect(1, "abc") is a
    assert cluster.elect(2, "bc") is b
    assert cluster.elect(3, "ac") is a
    assert cluster.elect(4, "bc") is b
    assert written(a.replica.history) == "[1@0 3@1]"
    assert (ids(a), ids(b)) == (["(1,0)", "(3,1)"], ["(2,0)", "(4,1)"])
    return cluster, a, b


def test_N4_trace_number_one():
    cluster, a, b = until_a_answers_late()
    cluster.cut -= {("a", "b"), ("b", "a")}
    late = cluster.fence(4, "a")[a.member]
    cluster.tell("b", AddFollower(4, late, standby=False))
    assert ids(a) == ids(b) == ["(2,0)", "(4,1)"], "a was cut to nothing"
    assert b.replica.commit == 2
    cluster.kill("b")
    cluster.cut.clear()
    assert cluster.elect(5, "ac") is a
    cluster.run(100)
    assert ids(a) == ["(2,0)", "(4,1)", "(5,2)"], "the committed (2,0) is there"


def test_N4_trace_number_one_with_the_seeds_rule_is_caught(monkeypatch: pytest.MonkeyPatch):
    """The seed keeps (1,0) under (4,1), and has no hash chain that would refuse it."""
    monkeypatch.setattr(leading, "divergence", oxia)
    monkeypatch.setattr(following, "divergence", oxia)
    cluster, a, b = until_a_answers_late()
    cluster.cut -= {("a", "b"), ("b", "a")}
    late = cluster.fence(4, "a")[a.member]
    cluster.tell("b", AddFollower(4, late, standby=False))
    assert ids(a) == ["(1,0)"], "what the leader never had is kept"
    assert b.replica.commit == 0, "but the chain of ours refuses what should follow it"
    monkeypatch.setattr(following, "refusal_to_append", lambda log, header: None)
    monkeypatch.setattr(following, "may_ack", lambda r: True)
    with pytest.raises(AssertionError, match=r"a#1 committed another \(1,0\)"):
        cluster.run(400)
    assert b.replica.commit == 2, "(2,0) was committed, and a does not hold it"
