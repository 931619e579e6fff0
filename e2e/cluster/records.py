"""Shards' records in etcd, read directly: what Shardlog itself goes by; a status only reports.

A scenario that has to know in which phase a change is at this moment cannot ask the operator, which
it holds or has killed.  etcd is reached by `kubectl port-forward`, as on any cluster.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from e2e.cluster.release import NAME, Release
from e2e.kubernetes import Refused, kubectl
from e2e.processes import CannotStart, start
from shardlog.metadata.etcd.settings import EtcdSettings
from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.failures import Unavailable
from shardlog.metadata.records import decode_shard, shard_key
from shardlog.metadata.store import ABSENT, Change
from shardlog.protocol.messages import Operation
from shardlog.protocol.shard import Shard, Status

MEMBER = f"{NAME}-etcd-0"
ANSWER_MS = 20_000
"""Every question goes by way of kubectl, the API server and a kubelet."""
FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


@dataclass(frozen=True, slots=True)
class Record:
    """As it stood when it was read."""

    version: int
    shard: Shard

    @property
    def phase(self) -> str:
        """Of the change that is under way, as a status names it; none if there is no change."""
        if self.shard.change is not None and self.shard.phase is not None:
            return self.shard.phase.value.capitalize()
        return "Joining" if self.shard.joining is not None else ""

    @property
    def operation(self) -> Operation | None:
        change = self.shard.change or self.shard.joining
        return change.operation if change else None

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(member.node for member in self.shard.ensemble)

    @property
    def leader(self) -> str:
        return self.shard.leader.node if self.shard.leader else ""

    @property
    def at_rest(self) -> bool:
        """A leader, nothing under way, and nothing left to be cleaned up."""
        steady = self.shard.status is Status.STEADY and self.shard.leader is not None
        return steady and not self.phase and not self.shard.removed


@dataclass(frozen=True, slots=True)
class Records:
    """One store, and the loop that it lives on: a scenario is no coroutine."""

    release: Release
    store: EtcdStore
    runner: asyncio.Runner

    def of(self, shard: str) -> Record:
        """Linearizable: whatever was written before this is seen."""
        found = self.runner.run(self.store.get(shard_key(shard)))
        assert found is not None, f"no record of {shard}"
        return Record(found.version, decode_shard(found.key, found.value))

    def put(self, shard: str, value: bytes) -> None:
        """One that is not there yet."""
        swapped = self.runner.run(self.store.compare_and_swap(shard_key(shard), ABSENT, value))
        assert swapped.done, f"there is a record of {shard} already"

    def elections(self, shard: str, after_epoch: int) -> int:
        """How many were begun since then: etcd keeps what a record was for longer than a run."""
        return len(
            {epoch for epoch in self.runner.run(self._elected(shard)) if epoch > after_epoch}
        )

    async def _elected(self, shard: str) -> list[int]:
        """The epochs in which a leader was, or is being, elected; as often as that was written."""
        key = shard_key(shard)
        found: list[int] = []
        last = await self.store.get(key)
        async with self.store.watch(key, 1) as changes:
            async for change in changes:
                assert isinstance(change, Change), "etcd has forgotten what was"
                if change.key == key and change.value is not None:
                    record = decode_shard(key, change.value)
                    if record.status is Status.ELECTION:
                        found.append(record.epoch)
                if last is None or change.revision >= last.version:
                    break
        return found

    def until_rest(self, shard: str) -> Record:
        def rested() -> Record | None:
            found = self.of(shard)
            return found if found.at_rest else None

        found = self.release.until(rested, f"{shard} does not come to rest")
        assert found is not None
        return found


@contextmanager
def records_of(release: Release) -> Iterator[Records]:
    """A member that has just come back may be Ready and not answer yet: it is asked again."""
    with asyncio.Runner() as runner, ExitStack() as held:

        def opened() -> EtcdStore:
            with ExitStack() as opening:
                url = opening.enter_context(_forwarded(release))
                settings = replace(
                    EtcdSettings.from_url(url),
                    connect_timeout_ms=ANSWER_MS,
                    request_timeout_ms=ANSWER_MS,
                )
                try:
                    store = runner.run(EtcdStore.open(settings))
                except Unavailable as failure:
                    raise Refused(str(failure)) from failure
                held.push(opening.pop_all())
                return store

        store = release.until(opened, f"{MEMBER} does not answer")
        try:
            yield Records(release, store, runner)
        finally:
            runner.run(store.close())


@contextmanager
def _forwarded(release: Release) -> Iterator[str]:
    """The URL of etcd, by a port of this machine."""
    release.until(
        lambda: (member := release.pod(MEMBER)) and member.is_ready, f"{MEMBER} is not Ready"
    )
    kubeconfig = f"--kubeconfig={release.cluster.kubernetes.kubeconfig}"
    which = ("port-forward", "--address=127.0.0.1", f"pod/{MEMBER}", ":2379")
    with tempfile.TemporaryDirectory(prefix="shardlog-e2e-") as temporary:
        command = [kubectl(), kubeconfig, "-n", release.namespace, *which]
        forwarding = start("port-forward", command, Path(temporary))
        try:
            try:
                forwarding.await_ready(
                    lambda: FORWARDING.search(forwarding.log.read_text()) is not None
                )
            except CannotStart as failure:
                raise Refused(str(failure)) from failure
            port = FORWARDING.findall(forwarding.log.read_text())[0]
            yield f"etcd://127.0.0.1:{port}/shardlog/{release.namespace}/"
        finally:
            forwarding.stop()
