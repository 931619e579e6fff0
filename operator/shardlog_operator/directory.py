"""The operator over HTTP: where shards are, whether the operator is well, and its metrics.

The directory says the same, in the same JSON, as that of a cluster on one machine
(`docs/local.md`), so a client needs to know only one of them.  It is read from the records, never
from a status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from shardlog.coordinator.directory_json import reports_json, shard_json
from shardlog.coordinator.driver import Control
from shardlog.coordinator.reporting import ask_members
from shardlog.metadata.etcd.presence import operators
from shardlog.metadata.failures import Unavailable
from shardlog.process.http_port import runner_of
from shardlog.protocol.shard import Shard, Status
from shardlog.transport.failures import Unreachable
from shardlog_operator.nodes import Nodes
from shardlog_operator.reconciling import Reconciler
from shardlog_operator.scheduling import Schedule
from shardlog_operator.snapshot_spec import SnapshotPhase
from shardlog_operator.spec import shard_spec

Json = Any


class OperatorCollector(Collector):
    """Everything that can be read off an operator when somebody asks."""

    def __init__(
        self, reconciler: Reconciler, schedule: Schedule, metadata_failure: Callable[[], str]
    ) -> None:
        self._reconciler = reconciler
        self._schedule = schedule
        self._metadata_failure = metadata_failure

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        reconciler, host = self._reconciler, self._reconciler.host
        phases = GaugeMetricFamily(
            "shardlog_operator_shards", "Records of shards by status.", labels=["status"]
        )
        for status in Status:
            count = sum(1 for each in host.shards.values() if each.status is status)
            phases.add_metric([status.value], count)
        yield phases
        snapshots = GaugeMetricFamily(
            "shardlog_operator_snapshots", "ShardSnapshots by phase.", labels=["phase"]
        )
        taken = [each.get("status") or {} for each in reconciler.watched.snapshots.values()]
        for phase in SnapshotPhase:
            count = sum(1 for each in taken if each.get("phase", "Pending") == phase)
            snapshots.add_metric([phase.value], count)
        yield snapshots
        halted = sum(1 for each in host.shards.values() if each.halted)
        changing = sum(1 for each in host.shards.values() if each.change or each.joining)
        available = not self._metadata_failure()
        gauges = (
            ("shards_halted", "Shards that are halted.", halted),
            ("shards_reconfiguring", "Shards with a change under way.", changing),
            ("shards_unreadable", "Records that cannot be read.", len(host.unreadable)),
            ("shards_stopped", "Shards this operator gave up.", len(host.stopped)),
            ("shards_broken", "Shards whose reconcile fails.", len(reconciler.broken)),
            ("nodes", "Pods that are nodes.", len(reconciler.watched.nodes.pods)),
            ("metadata_available", "1 if the metadata store answers.", available),
            ("api_available", "1 if the API server answers.", reconciler.kube.failure is None),
            ("due", "Shards that are due or worked on.", len(self._schedule)),
        )
        for name, told, value in gauges:
            yield GaugeMetricFamily(f"shardlog_operator_{name}", told, value)
        yield CounterMetricFamily(
            "shardlog_operator_reconciles", "Reconciles so far.", self._schedule.done
        )
        yield CounterMetricFamily(
            "shardlog_operator_api_writes",
            "Writes sent to the API server.",
            reconciler.kube.writes,
        )


class Directory:
    """`start`, then `stop`; `why_not` says what is missing until the operator is ready."""

    def __init__(
        self,
        reconciler: Reconciler,
        control: Control,
        nodes: Nodes,
        schedule: Schedule,
        metadata_failure: Callable[[], str],
        why_not: Callable[[], str],
    ) -> None:
        self._reconciler = reconciler
        self._host = reconciler.host
        self._control = control
        self._nodes = nodes
        self._why_not = why_not
        self._metadata_failure = metadata_failure
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(OperatorCollector(reconciler, schedule, metadata_failure))
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/v1/shards", self._list),
                web.get("/v1/shards/{name}", self._get),
                web.get("/v1/shards/{name}/status", self._status),
                web.get("/v1/nodes", self._nodes_listed),
                web.get("/v1/operators", self._operators_listed),
            ]
        )
        self._runner = runner_of(app)

    async def start(self, host: str, port: int) -> str:
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as failure:
            raise Unreachable(f"{host}:{port}: {failure}") from failure
        found_host, found_port, *_ = self._runner.addresses[0]
        return f"{found_host}:{found_port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    # --- the directory ---------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        shards = self._host.shards
        return web.json_response({"shards": [self._plain(shards[name]) for name in sorted(shards)]})

    async def _get(self, request: web.Request) -> web.Response:
        shard = self._host.shards.get(request.match_info["name"])
        return web.json_response(self._plain(shard)) if shard else self._missing(request)

    async def _status(self, request: web.Request) -> web.Response:
        shard = self._host.shards.get(request.match_info["name"])
        if shard is None:
            return self._missing(request)
        reports = await ask_members(self._host.name, self._control, shard)
        return web.json_response(self._plain(shard) | {"reports": reports_json(shard, reports)})

    def _missing(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if not self._host.begun.is_set():
            return _error(503, "the metadata has not been read yet", "Unavailable")
        unreadable = self._host.unreadable.get(name)
        if unreadable is not None:
            return _error(409, str(unreadable), "Rejected")
        return _error(404, f"there is no shard {name}", "NoSuchShard")

    def _plain(self, shard: Shard) -> Json:
        body = self._reconciler.watched.shards.get(shard.name)
        wanted = shard_spec(body).replicas if body else len(shard.final_ensemble)
        stopped = self._host.stopped.get(shard.name)
        trouble = shard.halted or (str(stopped) if stopped else None)
        waiting = self._host.waiting(shard.name)
        return shard_json(shard, wanted, trouble, self._nodes.data_address, waiting)

    async def _nodes_listed(self, request: web.Request) -> web.Response:
        places = self._nodes.places((), frozenset(), 0.0).nodes
        listed = [
            {
                "name": name,
                "data": self._nodes.data_address(name),
                "control": self._nodes.control_address(name),
                "http": None,
                "alive": places[name].alive,
            }
            for name in sorted(self._nodes.pods)
        ]
        return web.json_response({"nodes": listed})

    async def _operators_listed(self, request: web.Request) -> web.Response:
        """Those that run on the same metadata; for people."""
        try:
            found = await operators(self._host.store)
        except Unavailable as failure:
            return _error(503, str(failure), "Unavailable")
        return web.json_response({"operators": [asdict(each) for each in found]})

    # --- health ----------------------------------------------------------------------------------

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _readyz(self, request: web.Request) -> web.Response:
        why = self._why_not()
        told = {
            "ready": not why,
            "why": why or None,
            "metadata": self._metadata_failure() or None,
            "api": str(self._reconciler.kube.failure) if self._reconciler.kube.failure else None,
            "broken": {name: repr(why) for name, why in sorted(self._reconciler.broken.items())},
        }
        return web.json_response(told, status=200 if not why else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )


def _error(status: int, why: str, kind: str) -> web.Response:
    return web.json_response({"error": why, "kind": kind}, status=status)
