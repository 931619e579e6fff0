"""What others may see of a node over HTTP: whether it lives, whether it is ready, and figures.

`/healthz` fails only for what a restart may mend.  `/readyz` fails while the node does not listen
or is about to stop; replicas that cannot run are named there, but do not make the others unready.
`/metrics` reads the replicas when it is asked: nothing is counted where data passes, but for the
time that syncs take, which is measured in their own threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from shardlog.process.http_port import runner_of
from shardlog.protocol.states import Role
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog.storage.volume import Whole
from shardlog.transport.failures import Unreachable
from shardlog_node.clock import NodeClock
from shardlog_node.data_plane import DataPlane
from shardlog_node.host import HostedReplica, NodeHost
from shardlog_node.logs import Watch
from shardlog_node.scrubbing import Scrubber

disable_created_metrics()  # type: ignore[no-untyped-call]

SYNC_BUCKETS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)


# --- syncs ---------------------------------------------------------------------------------------


class SyncTimes:
    """How long syncs take, and those that are under way.  Used in any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._taken = Histogram(
            "shardlog_sync_seconds",
            "What one sync of a file, or of the volume, took.",
            buckets=SYNC_BUCKETS_S,
            registry=registry,
        )
        self._running: dict[int, float] = {}

    def timed(self, sync: Callable[[], None]) -> None:
        thread, began = threading.get_ident(), time.monotonic()
        self._running[thread] = began
        try:
            sync()
        finally:
            del self._running[thread]
            self._taken.observe(time.monotonic() - began)

    def longest_ms(self) -> int:
        """Since when the oldest of those under way is."""
        began = min(list(self._running.values()), default=None)
        return 0 if began is None else int((time.monotonic() - began) * 1000)


class TimedFile(RealFile):
    __slots__ = ("_times",)

    def __init__(self, file: RealFile, times: SyncTimes) -> None:
        super().__init__(file.fileno(), file.path)
        self._times = times

    def sync(self) -> None:
        self._times.timed(super().sync)


class TimedVolume:
    def __init__(self, whole: Whole, times: SyncTimes) -> None:
        self._whole = whole
        self._times = times

    def sync(self) -> None:
        self._times.timed(self._whole.sync)

    def close(self) -> None:
        self._whole.close()


class TimedFiles(RealFiles):
    """Real files whose syncs are timed."""

    __slots__ = ("_times",)

    def __init__(self, times: SyncTimes) -> None:
        self._times = times

    def open(self, path: str, *, write: bool = True) -> RealFile:
        return TimedFile(super().open(path, write=write), self._times)

    def create(self, path: str) -> RealFile:
        return TimedFile(super().create(path), self._times)

    def open_volume(self, path: str) -> Whole | None:  # type: ignore[override]
        whole = super().open_volume(path)
        return None if whole is None else TimedVolume(whole, self._times)


# --- metrics -------------------------------------------------------------------------------------


class NodeCollector(Collector):
    """Everything that can be read off a node when somebody asks."""

    def __init__(
        self,
        host: NodeHost,
        plane: DataPlane,
        clock: NodeClock,
        watch: Watch,
        times: SyncTimes,
        scrubber: Scrubber,
    ) -> None:
        self._host = host
        self._scrubber = scrubber
        self._plane = plane
        self._clock = clock
        self._watch = watch
        self._times = times

    def describe(self) -> list[Metric]:
        """Nothing: a registry would collect to find out, before there is a node."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._of_replicas()
        yield from self._of_followers()
        yield from self._of_repairs()
        yield from self._of_transfers()
        yield from self._of_node()

    def _of_replicas(self) -> Iterator[Metric]:
        replicas = dict(self._host.replicas)
        for name, told, read in PER_REPLICA:
            family = GaugeMetricFamily(f"shardlog_{name}", told, labels=["shard"])
            for shard, hosted in replicas.items():
                family.add_metric([shard], read(hosted))
            yield family
        roles = GaugeMetricFamily(
            "shardlog_replica_role", "1 for the role of each replica.", labels=["shard", "role"]
        )
        for shard, hosted in replicas.items():
            for role in Role:
                roles.add_metric([shard, str(role)], hosted.replica.role is role)
        yield roles

    def _of_repairs(self) -> Iterator[Metric]:
        repaired = CounterMetricFamily(
            "shardlog_entries_repaired",
            "Written anew, from others or from what is left.",
            labels=["shard"],
        )
        for shard, hosted in self._host.replicas.items():
            repaired.add_metric([shard], hosted.repaired)
        found = CounterMetricFamily(
            "shardlog_entries_found_bad",
            "Found damaged by a start (recovery), by a read, or by the scrubber.",
            labels=["shard", "by"],
        )
        mended = CounterMetricFamily(
            "shardlog_copies_mended",
            "Superblocks and heads of segments of which a copy was damaged, written anew.",
            labels=["shard"],
        )
        for shard, hosted in self._host.replicas.items():
            mended.add_metric([shard], hosted.store.files.copies_mended)
            for by, entries in hosted.found_bad.items():
                found.add_metric([shard, by], entries)
        offset = GaugeMetricFamily(
            "shardlog_scrub_offset", "How far this round of the scrubber is.", labels=["shard"]
        )
        rounds = CounterMetricFamily(
            "shardlog_scrub_rounds", "Rounds of the scrubber over the whole log.", labels=["shard"]
        )
        bad = CounterMetricFamily(
            "shardlog_scrub_found_bad",
            "Damaged entries that the scrubber found.",
            labels=["shard"],
        )
        for shard, progress in self._scrubber.progress.items():
            offset.add_metric([shard], progress.at)
            rounds.add_metric([shard], progress.rounds)
            bad.add_metric([shard], progress.found_bad)
        yield from (repaired, found, mended, offset, rounds, bad)

    def _of_followers(self) -> Iterator[Metric]:
        labels = ["shard", "follower"]
        lag = GaugeMetricFamily(
            "shardlog_follower_lag_records",
            "Records that a follower has not acknowledged, told by its leader.",
            labels=labels,
        )
        lost = GaugeMetricFamily(
            "shardlog_follower_lost",
            "1 if a follower lost what it had acknowledged.",
            labels=labels,
        )
        for shard, hosted in self._host.replicas.items():
            lead = hosted.replica.lead
            for member, cursor in lead.cursors.items() if lead else ():
                behind = max(hosted.replica.log.end - cursor.acked, 0)
                lag.add_metric([shard, member.node], behind)
                lost.add_metric([shard, member.node], cursor.lost)
        yield from (lag, lost)

    def _of_transfers(self) -> Iterator[Metric]:
        replicas = self._host.replicas
        for name, told, sent in (
            ("entries", "Entries sent to a follower, headers included.", self._plane.entries_sent),
            ("fetched", "Entries sent to one who fetched them.", self._plane.fetched_sent),
        ):
            family = CounterMetricFamily(
                f"shardlog_{name}_sent_bytes", told, labels=["shard", "follower"]
            )
            for labels, size in sorted(sent.items()):
                family.add_metric(list(labels), size)
            yield family
        taken = CounterMetricFamily(
            "shardlog_transfer_received_bytes",
            "Entries that came while the replica was behind.",
            labels=["shard"],
        )
        missing = GaugeMetricFamily(
            "shardlog_transfer_missing_records",
            "What has not come yet of what the replica lacked when it was told of it.",
            labels=["shard"],
        )
        rate = GaugeMetricFamily(
            "shardlog_transfer_bytes_per_second",
            "How fast that comes, in the last second.",
            labels=["shard"],
        )
        for shard, hosted in replicas.items():
            replica = hosted.replica
            taken.add_metric([shard], replica.transferred_bytes)
            left = per_s = 0
            if replica.transfer is not None:
                report = replica.transfer.report(replica.log.end, replica.now_ms)
                left, per_s = max(report.end - report.at, 0), report.bytes_per_s
            missing.add_metric([shard], left)
            rate.add_metric([shard], per_s)
        damaged = CounterMetricFamily(
            "shardlog_damaged_received",
            "Messages with entries that were not as they were made, by who sent them.",
            labels=["source"],
        )
        for source, number in sorted(self._host.damaged.items()):
            damaged.add_metric([source], number)
        yield from (taken, missing, rate, damaged)

    def _of_node(self) -> Iterator[Metric]:
        host, plane, clock = self._host, self._plane, self._clock
        gauges = (
            ("replicas", "Replicas that run here.", len(host.replicas)),
            ("replicas_failed", "Replicas that cannot run.", len(host.failed)),
            ("connections", "Open connections of the data plane.", plane.connections),
            ("links", "Nodes that this one has opened connections to.", len(plane.links)),
            ("inflight_bytes", "Bytes of appends that are not answered.", plane.budget.bytes),
            ("inflight_bytes_max", "So many may be unanswered.", plane.budget.bytes_max),
            ("sync_running_seconds", "Age of the oldest sync.", self._times.longest_ms() / 1000),
            ("clock_sources", "Clocks that are asked, one's own included.", clock.sources),
            ("clock_agreed", "1 if a majority of the clocks agrees.", clock.agreed is not None),
            ("clock_ahead_seconds", "Of the machine's wall clock.", clock.ahead_of_wall_ns / 1e9),
        )
        for name, told, value in gauges:
            yield GaugeMetricFamily(f"shardlog_{name}", told, value)
        counters = (
            ("role_changes", "Changes of role that were seen.", self._watch.role_changes),
            ("epochs", "Epochs begun after a replica was opened: elections.", self._watch.epochs),
            ("dropped_messages", "Messages for which there was no room.", plane.dropped),
            ("refused_connections", "Connections that ended ungreeted.", plane.refused),
        )
        for name, told, value in counters:
            yield CounterMetricFamily(f"shardlog_{name}", told, value)
        refusals = CounterMetricFamily(
            "shardlog_refusals", "What clients were refused.", labels=["refusal"]
        )
        for kind, number in sorted(plane.refusals.items()):
            refusals.add_metric([kind], number)
        yield refusals


def _segment_bytes(hosted: HostedReplica) -> int:
    return sum(segment.head.size for segment in hosted.store.files.segments.items)


def _log_bytes(hosted: HostedReplica) -> int:
    """Nobody may have looked yet where an older segment ends: it is taken for full."""
    return sum(
        (segment.position if segment.count >= 0 else segment.head.size) - segment.head.body_start
        for segment in hosted.store.files.segments.items
    )


PER_REPLICA: tuple[tuple[str, str, Callable[[HostedReplica], float]], ...] = (
    ("replica_epoch", "The highest epoch promised.", lambda it: it.replica.epoch),
    ("log_first_offset", "What is below was trimmed.", lambda it: it.replica.log.first),
    ("log_end_offset", "Its rate is records appended.", lambda it: it.replica.log.end),
    ("durable_end_offset", "What is below is synced here.", lambda it: it.replica.durable_end),
    ("commit_offset", "What is below is committed.", lambda it: it.replica.commit),
    ("replica_sessions", "Sessions of clients.", lambda it: len(it.replica.sessions.at_rest())),
    ("entries_bad", "Damaged, and not repaired yet.", lambda it: len(it.replica.log.marks)),
    ("replica_stalled", "1 if it waits for room.", lambda it: it.store.stalled is not None),
    ("log_bytes", "Of its entries; until it is trimmed the rate is bytes appended.", _log_bytes),
    ("segment_bytes", "Of its segments, with room for what is to come.", _segment_bytes),
)


# --- HTTP ----------------------------------------------------------------------------------------


class Observed(Protocol):
    """What a node knows of its own life."""

    name: str
    host: NodeHost

    @property
    def alive(self) -> bool: ...

    @property
    def listening(self) -> bool: ...

    @property
    def draining(self) -> bool: ...


class Observing:
    """The HTTP side of a node."""

    def __init__(self, node: Observed, registry: CollectorRegistry) -> None:
        self._node = node
        self._registry = registry
        ProcessCollector(registry=registry)
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = runner_of(app)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as failure:
            raise Unreachable(f"{host}:{port}: {failure}") from failure
        found_host, found_port, *_ = self._runner.addresses[0]
        return str(found_host), int(found_port)

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        alive = self._node.alive
        return web.json_response({"alive": alive}, status=200 if alive else 503)

    async def _readyz(self, request: web.Request) -> web.Response:
        node = self._node
        ready = node.alive and node.listening and not node.draining
        told = {
            "ready": ready,
            "name": node.name,
            "listening": node.listening,
            "draining": node.draining,
            "replicas": len(node.host.replicas),
            "failed": {shard: str(why) for shard, why in sorted(node.host.failed.items())},
        }
        return web.json_response(told, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )
