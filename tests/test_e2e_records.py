"""How end-to-end scenarios read a shard's record: on a real etcd, without any Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from etcd.cluster import EtcdCluster

from e2e.cluster.clients import Clients
from e2e.cluster.records import Records
from e2e.cluster.release import Release
from e2e.cluster.scenario import Scenario
from e2e.cluster.test_operators import met
from e2e.kubernetes import Kubernetes
from e2e.providers import GivenCluster
from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.records import encode_shard, shard_key
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Operation, Reconfiguration
from shardlog.protocol.shard import Joining, Phase, Shard, Status

A, B, C, D = (Member(name, number) for number, name in enumerate("abcd", 1))
REST = Shard("orders", Status.STEADY, 2, A, (A, B, C))
JOINING = replace(REST, joining=Joining(Operation.SWAP, C, "d", 0))
CHANGE = Reconfiguration(Operation.SWAP, REST.ensemble, C, D)
PREPARE = replace(REST, epoch=3, change=CHANGE, phase=Phase.PREPARE)
COMMIT = replace(PREPARE, phase=Phase.COMMIT)
SWAPPED = replace(REST, epoch=3, ensemble=CHANGE.after, removed=(C,))
ELECTION = replace(REST, status=Status.ELECTION, leader=None)

pytestmark = pytest.mark.needs("etcd")


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    release = Release(GivenCluster(Kubernetes(Path("/nowhere"))))
    with EtcdCluster(tmp_path) as etcd, asyncio.Runner() as runner:
        store = runner.run(EtcdStore.open(f"etcd://{etcd.endpoints[0]}/shardlog/logs/"))
        try:
            yield Records(release, store, runner)
        finally:
            runner.run(store.close())


def write(records: Records, shard: Shard) -> None:
    version = records.of(shard.name).version
    value = encode_shard(shard)
    swapping = records.store.compare_and_swap(shard_key(shard.name), version, value)
    assert records.runner.run(swapping).done


def test_a_change_is_told_by_its_phase(records: Records):
    records.put("orders", encode_shard(REST))
    seen = [records.of("orders")]
    for shard in (JOINING, PREPARE, COMMIT, SWAPPED, replace(SWAPPED, removed=())):
        write(records, shard)
        seen.append(records.of("orders"))
    assert [each.phase for each in seen] == ["", "Joining", "Prepare", "Commit", "", ""]
    swap = Operation.SWAP
    assert [each.operation for each in seen] == [None, swap, swap, swap, None, None]
    assert [each.at_rest for each in seen] == [True, False, False, False, False, True]
    assert seen[-1].nodes == {"a", "b", "d"}
    assert records.until_rest("orders") == seen[-1]


def test_elections_are_counted_since_an_epoch(records: Records):
    """Not changes, which begin epochs too, and an election that is written twice once."""
    records.put("orders", encode_shard(replace(ELECTION, epoch=1)))
    records.put("orders-2", encode_shard(replace(ELECTION, name="orders-2", epoch=9)))
    asked_again = replace(ELECTION, epoch=4, preferred="b")
    for shard in (REST, PREPARE, replace(ELECTION, epoch=4), asked_again, replace(REST, epoch=4)):
        write(records, shard)
    for shard in (ELECTION, REST):
        write(records, replace(shard, epoch=7))
    assert records.elections("orders", 0) == 3
    assert records.elections("orders", 3) == 2
    assert records.elections("orders", 7) == 0


@dataclass(slots=True)
class Stepped:
    """An operator that writes one record in each step."""

    records: Records
    left: Iterator[Shard]

    def step(self, for_s: float) -> None:
        write(self.records, next(self.left))

    def let_go(self) -> None: ...
    def kill(self) -> None: ...


@pytest.mark.parametrize(
    ("steps", "is_met"),
    [
        ((REST, JOINING, PREPARE), True),
        ((JOINING, COMMIT, SWAPPED), False),
        ((SWAPPED,), False),
        ((JOINING, replace(REST, removed=(D,))), False),
    ],
    ids=["met", "passed by", "not seen at all", "given up"],
)
def test_a_phase_is_met_or_the_change_is_over(
    records: Records, steps: tuple[Shard, ...], is_met: bool
):
    records.put("orders", encode_shard(REST))
    it = Scenario(records.release, "orders", Clients(records.release, "orders"))
    held = Stepped(records, iter(steps))
    assert met(it, records, held, records.of("orders"), "Prepare") is is_met
    assert next(held.left, None) is None
