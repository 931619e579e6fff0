"""The table of roles: what the machines do is in it, what is in it can be done, and it is shown."""

import re
from pathlib import Path
from random import Random

import pytest

from protocol.cluster import Cluster
from protocol.harness import LEADER, Node, chain, fenced, follower, history_of, leading
from shardlog.protocol.coordination import Contract, Expand, Promote, Swap, TrimShard
from shardlog.protocol.failures import StaleEpoch
from shardlog.protocol.history import OPEN_END
from shardlog.protocol.messages import (
    Announce,
    Appended,
    BecomeLeader,
    Create,
    Destroy,
    Fence,
    Kept,
    Refused,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.states import TRANSITIONS, Cause, Role, diagram

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
LOG = chain([1])
EDGES = [(role, cause) for role, exits in TRANSITIONS.items() for cause in exits]


# --- what is done is in the table --------------------------------------------------------------


def at_random(seed: int, steps: int = 100) -> Cluster:
    """Nodes and operators die and come back, links are cut, the ensemble changes, clients write."""
    random = Random(seed)
    cluster = Cluster("abcde", operators=["op", "op2"])
    cluster.bring_up()
    for _ in range(steps):
        act = random.randrange(8)
        name = random.choice("abcde")
        if act == 0 and len(cluster.down) < 2:
            cluster.kill(random.choice([name, "op", "op2"]))
        elif act <= 2 and cluster.down:
            cluster.revive(random.choice(sorted(cluster.down)))
        elif act == 3:
            cluster.cut = {(name, other) for other in random.sample("abcde", 2) if other != name}
        elif act == 4:
            cluster.cut.clear()
        elif act == 5:
            other = random.choice("abcde")
            wanted = (Swap(name, other), Expand(name), Contract(name), Promote(name), TrimShard(9))
            operator = random.choice(["op", "op2"])
            if operator not in cluster.down:
                cluster.command(random.choice(wanted), operator)
        elif any(node.replica.role is Role.LEADER for node in cluster.nodes.values()):
            cluster.append(1, random.randrange(1, 9))
        cluster.run(random.choice([25, 100, 400, 1600]))
    return cluster


@pytest.mark.parametrize("seed", range(3))
def test_O9_every_change_of_role_is_in_the_table(seed):
    cluster = at_random(seed)
    seen = {change for node in cluster.nodes.values() for change in node.roles}
    changes = {(before, after) for before, after in seen if before is not after}
    assert changes, "something happened"
    assert all(after in TRANSITIONS[before].values() for before, after in changes)


@pytest.mark.parametrize("seed", range(4, 6))
def test_O7_after_random_faults_the_shard_serves_and_no_change_is_left_over(seed):
    cluster = at_random(seed)
    cluster.cut.clear()
    for name in sorted(cluster.down):
        cluster.revive(name)
    cluster.run(20_000)
    assert isinstance(cluster.append(cluster.register(), 1), Appended)
    record = cluster.record
    assert (record.change, record.joining, record.removed) == (None, None, ())


# --- what is in the table can be done ----------------------------------------------------------


def in_role(role: Role) -> Node:
    if role is Role.NOT_MEMBER:
        return Node("a")
    if role is Role.FENCED:
        return fenced("a", epoch=2)
    if role is Role.LEADER:
        return leading(LOG)
    return follower(LOG, epoch=2, standby=role is Role.STANDBY)


def caused(node: Node, cause: Cause) -> None:
    """The message that makes it happen."""
    history = history_of(node.replica.log.headers)
    epoch = node.replica.epoch + (node.replica.role is not Role.FENCED)
    if cause is Cause.CREATE:
        node.receive(Create(), draw=1)
    elif cause is Cause.FENCE:
        node.receive(Fence(9))
    elif cause in (Cause.ANNOUNCE, Cause.ANNOUNCE_STANDBY):
        standby = cause is Cause.ANNOUNCE_STANDBY
        node.receive(Announce(epoch, history, 0, OPEN_END, 0, standby, None), LEADER)
    elif cause is Cause.BECOME_LEADER:
        message = BecomeLeader(epoch, (node.member,), QuorumPolicy(), Kept((), 0, 0), (), ())
        node.receive(message)
    elif cause is Cause.STEP_DOWN:
        node.receive(Refused("Heartbeat", 9, StaleEpoch(9)), LEADER)
    else:
        node.receive(Destroy())


@pytest.mark.parametrize(("role", "cause"), EDGES)
def test_every_transition_happens(role, cause):
    node = in_role(role)
    assert node.replica.role is role
    caused(node, cause)
    assert node.replica.role is TRANSITIONS[role][cause]


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.NOT_MEMBER])
def test_O1_a_restart_leads_to_fenced_from_any_role(role):
    node = in_role(role)
    node.restart()
    assert node.replica.role is Role.FENCED


def test_every_role_can_be_left():
    assert set(TRANSITIONS) == set(Role)
    assert all(TRANSITIONS.values())


# --- it is shown -------------------------------------------------------------------------------

LINE = re.compile(r"    (\[\*\]|[A-Z_]+) --> ([A-Z_]+)(: .+)?")


def test_the_diagram_is_mermaid():
    first, *lines = diagram().splitlines()
    assert first == "stateDiagram-v2"
    assert all(LINE.fullmatch(line) for line in lines)
    assert len(lines) == len(set(lines))


def test_the_diagram_shows_the_whole_table():
    shown = {
        (found[1], found[2], (found[3] or "")[2:])
        for found in map(LINE.fullmatch, diagram().splitlines()[1:])
        if found
    }
    table = {(role, exits[cause], cause) for role, exits in TRANSITIONS.items() for cause in exits}
    restarts = {(role, Role.FENCED, "restart") for role in Role if role is not Role.NOT_MEMBER}
    assert shown == table | restarts | {("[*]", Role.NOT_MEMBER, "")}


def test_the_document_shows_the_same_diagram():
    blocks = re.findall(r"```mermaid\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert diagram() in blocks, f"{DOCUMENT.name} is out of date: paste states.diagram()"
