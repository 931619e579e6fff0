"""Events and the objects that lead clients to a leader: what is said, as the API is told it."""

from __future__ import annotations

import pytest

from kube_operator.values import joining, record, spec, swapping
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.upkeep import Upkeep
from shardlog_operator.discovery import (
    SHARD_LABEL,
    LeaderPod,
    differs,
    endpoint_slice,
    is_ours,
    owned_by,
    service,
)
from shardlog_operator.events import SAME_FOR_S, Told, changes, manifest
from shardlog_operator.spec import FINALIZER, Deletion, shard_spec

ELECTING = record(leader=None, status=Status.ELECTION)
ABOUT = {
    "apiVersion": "shardlog.dev/v1alpha1",
    "kind": "Shard",
    "metadata": {"name": "orders", "namespace": "logs", "uid": "u", "resourceVersion": "7"},
}


@pytest.mark.parametrize(
    ("before", "now", "reasons"),
    [
        (None, None, []),
        (None, ELECTING, []),
        (None, record(), ["LeaderElected"]),
        (record(), None, []),
        (record(), record(), []),
        (record(), ELECTING, ["Electing"]),
        (ELECTING, record(leader="b"), ["LeaderElected"]),
        (record(), record(leader="b"), ["LeaderElected"]),
        (record(), swapping("c", "d"), ["Reconfiguring"]),
        (swapping("c", "d"), record("abd"), ["Reconfigured"]),
        (swapping("c", "d"), record(), ["ReconfigurationAborted"]),
        (joining("d"), record(), ["ReconfigurationAborted"]),
        (joining("d"), swapping("c", "d"), ["Reconfiguring"]),
        (record(), record(halted="why"), ["Halted"]),
        (record(), joining("d"), []),
    ],
)
def test_what_became_of_a_shard(before: Shard | None, now: Shard | None, reasons: list[str]):
    assert [told.reason for told in changes(before, now)] == reasons


def test_an_event_as_the_api_takes_it():
    told = manifest(Told("Scaling", "d is added"), ABOUT, "shardlog-operator", "op-1", 5.0, "now")
    assert told["involvedObject"]["uid"] == "u"
    assert (told["type"], told["reason"], told["message"]) == ("Normal", "Scaling", "d is added")
    assert told["metadata"]["namespace"] == "logs"
    assert told["reportingInstance"] == "op-1"


def test_two_operators_give_the_same_event_the_same_name():
    def name(told: Told, instance: str, now_s: float) -> str:
        return str(manifest(told, ABOUT, "c", instance, now_s, "now")["metadata"]["name"])

    told = Told("Scaling", "d is added")
    assert name(told, "op-1", 5.0) == name(told, "op-2", 6.0)
    assert name(told, "op-1", 5.0) != name(Told("Scaling", "e is added"), "op-1", 5.0)
    assert name(told, "op-1", 5.0) != name(told, "op-1", 5.0 + SAME_FOR_S)


# --- discovery -----------------------------------------------------------------------------------

LEADER = LeaderPod("node-1", "10.0.0.7", 7400, 7403, "machine-1", "pod-uid")


def test_the_service_has_no_selector_and_belongs_to_the_shard():
    made = service(spec(), "logs")
    assert made["metadata"]["name"] == "orders"
    assert "selector" not in made["spec"]
    assert made["metadata"]["ownerReferences"] == [owned_by(spec())]
    assert {each["name"]: each["port"] for each in made["spec"]["ports"]} == {
        "data": 7400, "public": 7403,
    }  # fmt: skip


def test_the_slice_is_the_leader():
    made = endpoint_slice(spec(), "logs", LEADER)
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "orders"
    assert made["endpoints"][0]["addresses"] == ["10.0.0.7"]
    assert made["endpoints"][0]["nodeName"] == "machine-1"
    assert made["endpoints"][0]["targetRef"]["name"] == "node-1"
    assert {each["name"]: each["port"] for each in made["ports"]} == {"data": 7400, "public": 7403}


def test_without_a_leader_nobody_is_there():
    assert endpoint_slice(spec(), "logs", None)["endpoints"] == []


def test_what_is_not_ours_is_known():
    ours = service(spec(), "logs")
    assert is_ours(ours, spec())
    assert not is_ours({"metadata": {"name": "orders"}}, spec())
    retained = {"metadata": {"labels": {SHARD_LABEL: "orders"}, "ownerReferences": [
        {"kind": "Shard", "uid": "an earlier one"}]}}  # fmt: skip
    assert is_ours(retained, spec())


def test_what_others_add_is_theirs():
    made = service(spec(), "logs")
    found = service(spec(), "logs")
    found["spec"]["clusterIP"] = "10.1.1.1"
    found["metadata"]["annotations"] = {"a": "b"}
    assert not differs(found, made)
    found["spec"]["ports"][0]["port"] = 1
    assert differs(found, made)
    assert differs({}, made)
    assert differs(endpoint_slice(spec(), "logs", LEADER), endpoint_slice(spec(), "logs", None))


# --- specs ---------------------------------------------------------------------------------------


def test_a_shard_is_read_with_the_defaults_of_the_crd():
    found = shard_spec({"metadata": {"name": "orders"}})
    assert (found.replicas, found.pool, found.deletion) == (3, "default", Deletion.RETAIN)
    assert (found.paused, found.deleting, found.finalized) == (False, False, False)
    assert found.topology_key == "kubernetes.io/hostname"


def test_a_shard_is_read():
    found = shard_spec(
        {
            "metadata": {
                "name": "orders", "uid": "u", "generation": 5, "finalizers": [FINALIZER],
                "deletionTimestamp": "now",
                "annotations": {"shardlog.dev/aborted-generation": "5"},
            },
            "spec": {
                "replicas": 5, "pool": "ssd", "quorum": {"replication": 4, "fencing": 2},
                "placement": {"topologyKey": "zone"}, "deletionPolicy": "Delete", "paused": True,
                "durability": "Relaxed", "retention": {"bytes": 5, "time": "1h30m"},
            },
        }
    )  # fmt: skip
    assert (found.replicas, found.pool, found.topology_key) == (5, "ssd", "zone")
    assert (found.quorum.replication, found.quorum.fencing) == (4, 2)
    assert found.deletion is Deletion.DELETE
    assert found.paused
    assert found.deleting
    assert found.finalized
    assert found.upkeep == Upkeep(retention_bytes=5, retention_ms=5_400_000, relaxed=True)
    assert found.scaling_aborted
