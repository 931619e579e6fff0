"""The life of Shards on a real API server: schemas, subresources and conflicts are its own."""

from __future__ import annotations

import json

from e2e.operated.installation import Installation

NODES = ("node-0", "node-1", "node-2", "node-3", "node-4")


def test_created_scaled_and_deleted(it: Installation):
    it.start_nodes(*NODES)
    it.start_operator()
    it.shard(replicas=3, deletionPolicy="Delete")
    status = it.ready()
    columns = it.kubectl("get", "shard", "orders").splitlines()[1].split()
    assert columns[:3] == ["orders", "True", status["leader"]]
    it.until(lambda: it.leader_address() == status["leader"])
    service = it.get("service", "orders") or {}
    assert service["spec"]["ports"][0]["port"] == 7400

    it.kubectl("scale", "shard/orders", "--replicas=5")
    assert len(it.ready(5)["ensemble"]) == 5
    it.kubectl("scale", "shard/orders", "--replicas=3")
    it.ready(3)
    it.until(lambda: {"Creating", "Scaling", "LeaderElected"} <= it.reasons())

    it.kubectl("delete", "shard", "orders", "--wait=false")
    it.until(lambda: it.get("shard", "orders") is None)
    assert it.get("service", "orders") is None


def test_the_slice_follows_a_leader_that_is_killed(it: Installation):
    it.start_nodes(*NODES[:3])
    it.start_operator()
    it.shard(replicas=3)
    leader = it.ready()["leader"]
    it.kill_node(leader)
    new = it.until(lambda: it.leader_address() not in (leader, None) and it.leader_address())
    it.until(lambda: it.status().get("leader") == new)


def test_an_operator_is_killed_in_the_middle_and_a_second_one_goes_on(it: Installation):
    it.start_nodes(*NODES)
    it.start_operator("operator-0")
    it.shard(replicas=3)
    it.ready()
    it.kubectl("scale", "shard/orders", "--replicas=5")
    it.until(lambda: it.status().get("reconfiguration") or it.status().get("replicas") != 3)
    it.kill_operator("operator-0")
    it.start_operator("operator-1")
    it.ready(5)


def test_two_operators_at_once(it: Installation):
    it.start_nodes(*NODES)
    it.start_operator("operator-0")
    it.start_operator("operator-1")
    for number in range(3):
        it.shard(f"shard-{number}", replicas=3)
    for number in range(3):
        it.ready(name=f"shard-{number}")
    it.kubectl("scale", "shard/shard-0", "--replicas=5")
    it.ready(5, "shard-0")


def test_a_lost_node_is_swapped(it: Installation):
    it.start_nodes(*NODES[:4])
    it.start_operator()
    it.shard(replicas=3)
    leader = it.ready()["leader"]
    it.kill_node(leader)
    it.set_running(leader, False)
    it.until(lambda: len(it.members()) == 3 and leader not in it.members())
    it.until(lambda: it.condition("FullyReplicated").get("status") == "True")
    it.until(lambda: "NodeLost" in it.reasons())


def test_retained_and_adopted(it: Installation):
    it.start_nodes(*NODES[:3])
    it.start_operator()
    it.shard(replicas=3)
    before = {each["node"]: each["incarnation"] for each in it.ready()["ensemble"]}
    it.kubectl("delete", "shard", "orders", "--wait=false")
    it.until(lambda: it.get("shard", "orders") is None)
    it.shard(replicas=3)
    after = {each["node"]: each["incarnation"] for each in it.ready()["ensemble"]}
    assert before == after
    it.until(lambda: {"Retained", "Adopted"} <= it.reasons())


def test_a_pod_is_ready_when_its_shards_are_whole(it: Installation):
    it.start_nodes(*NODES[:3])
    it.start_operator()
    it.shard(replicas=3)
    it.ready()

    def gates() -> list[str]:
        pods = it.api.get("-n", it.namespace, "pods")["items"]
        return [
            each["status"]
            for pod in pods
            for each in pod["status"]["conditions"]
            if each["type"] == "shardlog.dev/replicated"
        ]

    it.until(lambda: gates() == ["True"] * 3)


def test_what_cannot_be_placed_recovers(it: Installation):
    it.start_nodes(*NODES[:2])
    it.start_operator()
    it.shard(replicas=3)
    it.until(lambda: it.condition("Ready").get("reason") == "TooFewNodes")
    it.until(lambda: "TooFewNodes" in it.reasons())
    it.start_nodes("node-2")
    it.ready()


def test_a_cordoned_machine_is_left(it: Installation):
    it.start_nodes(*NODES[:4])
    it.start_operator()
    it.shard(replicas=3)
    leader = it.ready()["leader"]
    it.api.kubectl("cordon", f"{it.namespace}-{leader}")
    it.until(lambda: len(it.members()) == 3 and leader not in it.members())


def test_the_statuses_are_what_the_schema_keeps(it: Installation):
    """Whatever the API server does not know it drops, so nothing may be missing there."""
    it.start_nodes(*NODES[:3])
    it.start_operator()
    it.shard(replicas=3)
    status = it.ready()
    known = json.loads(it.kubectl("get", "crd", "shards.shardlog.dev", "-o", "json"))
    schema = known["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert set(status) <= set(schema["properties"])
    assert {"history", "commitOffset", "epoch", "selector", "leader"} <= set(status)
    assert {"head", "commit", "lag", "state", "incarnation"} <= set(status["ensemble"][0])
