"""One scenario: a shard of its own under load, something that is done to it, and what came of it.

    with scenarios.scenario("the leader's pod is deleted") as it:
        before = it.pod(it.leader())
        it.break_by(lambda: it.release.kubectl("delete", "pod", before.name))
        it.prove("pod UID", before.uid, lambda: it.pod(before.name).uid)
        it.until_steady()

When it is left the clients are ended, their history is judged, and a line of the report is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from faults.history import History

from e2e.cluster.clients import Clients
from e2e.cluster.diagnostics import collect
from e2e.cluster.records import records_of
from e2e.cluster.release import Pod, Release
from e2e.cluster.report import Line, Report

Json = Any


@dataclass(slots=True)
class Scenario:
    release: Release
    shard: str
    clients: Clients
    proofs: list[str] = field(default_factory=list)
    comparisons: list[Callable[[History], None]] = field(default_factory=list)
    broken_at_s: float | None = None
    ready_after_s: float | None = None

    # --- looking ---------------------------------------------------------------------------------

    def status(self) -> Json:
        return self.release.status(self.shard)

    def leader(self) -> str:
        """Nobody while one is elected."""
        return str(self.status().get("leader", ""))

    def members(self) -> set[str]:
        return self.release.members(self.shard)

    def outsiders(self) -> list[str]:
        """Nodes that hold nothing of this shard."""
        return sorted(set(self.release.pods("node")) - self.members())

    def pod(self, name: str) -> Pod:
        found = self.release.pod(name)
        assert found, f"no pod {name}"
        return found

    def incarnation(self, node: str) -> str:
        told = {each["node"]: each["incarnation"] for each in self.status()["ensemble"]}
        return str(told.get(node, ""))

    # --- doing -----------------------------------------------------------------------------------

    def break_by(self, fault: Callable[[], object]) -> None:
        """From here on time is counted until all is well again; at first, until the Shard is."""
        self.broken_at_s = time.monotonic()
        self.ready_after_s = None
        fault()

    def prove(self, what: str, before: object, after: Callable[[], object]) -> None:
        """The fault took place: this is not what it was."""

        def changed() -> str:
            now = after()
            return str(now) if now and now != before else ""

        now = self.release.until(changed, f"{what} is still {before}")
        self.proofs.append(f"{what}: {str(before)[:40]} → {now[:40]}")

    def compare(self, comparison: Callable[[History], None]) -> None:
        """What others saw of the log, with what clients did and saw once that is judged."""
        self.comparisons.append(comparison)

    def until_steady(self, replicas: int = 3) -> Json:
        status = self.release.until(
            lambda: self.release.steady(self.shard, replicas),
            f"{self.shard} is not steady with {replicas} replicas",
        )
        if self.broken_at_s is not None:
            self.ready_after_s = time.monotonic() - self.broken_at_s
        return status

    def until_leader(self, node: str) -> None:
        """By the Shard's status, which may be behind for a moment."""
        self.release.until(lambda: self.leader() == node, f"{node} does not lead")
        self.until_steady()

    def operate(self, operation: str, **spec: str) -> Json:
        """A ShardOperation, once it has come to an end."""
        return self.ended(self.ask(operation, **spec))

    def ask(self, operation: str, **spec: str) -> str:
        """For a ShardOperation; its name."""
        name = f"{self.shard}-{operation.lower()}-{time.monotonic_ns()}"
        self.release.apply(
            {
                "apiVersion": "shardlog.dev/v1alpha1",
                "kind": "ShardOperation",
                "metadata": {"name": name, "namespace": self.release.namespace},
                "spec": {"operation": operation, "shard": self.shard, **spec},
            }
        )
        return name

    def ended(self, name: str) -> Json:
        """How this ShardOperation came to an end."""

        def status() -> Json:
            found = (self.release.get("shardoperation", name) or {}).get("status") or {}
            return found if found.get("phase") in ("Succeeded", "Failed") else None

        return self.release.until(status, f"{name} does not end")


@dataclass(frozen=True, slots=True)
class Scenarios:
    release: Release
    report: Report

    @contextmanager
    def scenario(
        self, title: str, shard: str, avoid: str = "", first: int = 0, **spec: object
    ) -> Iterator[Scenario]:
        began_s = time.monotonic()
        it = Scenario(self.release, shard, Clients(self.release, shard))
        try:
            self.release.until_whole()
            it.break_by(lambda: self.release.create_shard(shard, **spec))
            it.until_steady(int(str(spec.get("replicas", 3))))
            epoch = int(it.status()["epoch"])
            it.clients.start(avoid, first)
            yield it
            it.clients.until_more()
            judged = it.clients.finish()
            for compare in it.comparisons:
                compare(judged.history)
            assert it.proofs, "nothing shows that anything happened"
            with records_of(self.release) as records:
                elections = records.elections(shard, epoch)
            line = Line(
                scenario=title,
                records=judged.records,
                reads=judged.reads,
                pause_ms=judged.pause_ms,
                ready_s=it.ready_after_s,
                elections=elections,
                epochs=int(it.status()["epoch"]) - epoch,
                proofs=tuple(it.proofs),
                took_s=time.monotonic() - began_s,
            )
        except BaseException as failure:
            where = collect(self.release, shard)
            self.report.failed(title, f"{type(failure).__name__}: {failure}"[:300], where)
            raise
        else:
            self.report.passed(line)
        finally:
            it.clients.remove()
            self.release.kubectl("delete", f"shard/{shard}", "--ignore-not-found", "--wait=false")
