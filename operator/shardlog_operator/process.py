"""The operator process: its parts put together, and its life from start to stop.

It coordinates first and watches the API server second: with the API server out of reach leaders are
still elected, and with the metadata store out of reach Shards still say so.  Nothing it holds in
memory matters, so it may be killed at any moment.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

from shardlog import __version__
from shardlog.coordinator.calls import NodeControl
from shardlog.coordinator.commanding import Commander
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.failures import Unavailable
from shardlog.metadata.store import MetadataStore
from shardlog.process.logs import logger_of
from shardlog.process.settings import BadSettings, load_cluster_key
from shardlog.transport.control import ControlClient, ControlLimits, ControlTls
from shardlog_operator.directory import Directory
from shardlog_operator.handlers import Connect
from shardlog_operator.kube import ApiFailure, Kube, log_in, wait_for_kinds
from shardlog_operator.looking import Looking
from shardlog_operator.machines import Machines
from shardlog_operator.nodes import Nodes
from shardlog_operator.operating import Operating
from shardlog_operator.publishing import EventPoster, Gates, Publisher
from shardlog_operator.reconciling import Reconciler, follow_records
from shardlog_operator.scheduling import Schedule
from shardlog_operator.settings import OperatorSettings, labels_of
from shardlog_operator.snapshot_spec import SNAPSHOTS
from shardlog_operator.snapshotting import Snapshotting
from shardlog_operator.spec import OPERATIONS, SHARDS
from shardlog_operator.watched import PODS, Watched
from shardlog_operator.watching import Watching

PROBE_S = 5.0
PROBE_KEY = "operator"
KINDS_S = 2.0
OPERATION_WORKERS = 4
SNAPSHOT_WORKERS = 4


class OperatorProcess:
    """`run` until `stop` is set, or something ends that must not."""

    def __init__(
        self,
        settings: OperatorSettings,
        store: MetadataStore,
        connect: Connect = log_in,
    ) -> None:
        self.settings = settings
        self.store = store
        self.stop = asyncio.Event()
        self.log = logger_of("operator", operator=settings.name)
        self.address = ""
        self.metadata_failure = "not asked yet"
        self._connect = connect
        self._kinds = "the API server has not been asked yet"

        clock_s = time.monotonic
        self.nodes = Nodes(clock_s, settings.node_addresses)
        self.watched = Watched(self.nodes, labels_of(settings.node_selector))
        self.kube = Kube(settings.namespace, connect)
        self.client = ControlClient(
            ControlLimits(), control_tls(settings), load_cluster_key(settings.cluster_key_file)
        )
        control = NodeControl(
            self.client, self.nodes.control_address, self.nodes.data_address, self._refused
        )
        self.host = CoordinatorHost(settings.name, store, control, _now_ms)
        commander = Commander(self.host)
        self.poster = EventPoster(self.kube, settings.name, self.log)
        publisher = Publisher(self.kube, clock_s)
        looking = Looking(settings, self.host, control, clock_s)
        self.reconciler = Reconciler(
            settings, self.kube, self.watched, commander, looking, self.poster, publisher,
            clock_s, self.log,
        )  # fmt: skip
        self.operating = Operating(
            self.kube, self.watched, commander, self.reconciler.situation, self.poster, clock_s,
            self.log,
        )  # fmt: skip
        self.gates = Gates(self.kube, self.nodes, looking.replication, self.log)
        self.machines = Machines(self.kube, self.nodes, self._nodes_changed, self.log)
        self.schedule = Schedule(clock_s, settings.workers)
        self.operations = Schedule(clock_s, OPERATION_WORKERS)
        self.snapshots = Schedule(clock_s, SNAPSHOT_WORKERS)
        self.snapshotting = Snapshotting(
            self.kube, self.watched, self.host, settings.snapshot_template, self.poster,
            self.log,
        )  # fmt: skip
        self.directory = Directory(
            self.reconciler,
            control,
            self.nodes,
            self.schedule,
            lambda: self.metadata_failure,
            self._why_not_ready,
        )
        self.watched.shard_heard = self._shard_heard
        self.watched.operation_heard = self.operations.soon
        self.watched.snapshot_heard = self.snapshots.soon
        self.watched.nodes_changed = self._nodes_changed
        self.watched.pod_heard = lambda _: self.gates.look()
        looking.looked = self.gates.look

    def _refused(self, node: str, why: str) -> None:
        self.log.error(f"{node} refuses this operator's key", node=node, why=why)

    # --- news ------------------------------------------------------------------------------------

    def _shard_heard(self, name: str) -> None:
        self.schedule.soon(name)
        for asked in self.watched.specs():
            if asked.shard == name and not asked.ended:
                self.operations.soon(asked.name)

    def _record_changed(self, name: str) -> None:
        self._shard_heard(name)
        for asked in self.watched.specs():
            if asked.shard is None and not asked.ended:
                self.operations.soon(asked.name)
        self.gates.look()

    def _nodes_changed(self) -> None:
        self.reconciler.node_heard()
        for name in {*self.watched.shards, *self.host.shards}:
            self.schedule.soon(name)
        self.gates.look()

    # --- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        settings = self.settings
        self.address = await self.directory.start(settings.http_host, settings.http_port)
        self.log.info("started", version=__version__, http=self.address, store=str(settings.prefix))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(each)
                    for each in (
                        self.host.run(),
                        self._probe(),
                        self._be_present(),
                        self._watch(),
                        self._resync(),
                        self.poster.run(),
                        self.gates.run(),
                        self.machines.run(),
                        self.schedule.run(self.reconciler.reconcile),
                        self.operations.run(self.operating.operate),
                        self.snapshots.run(self.snapshotting.look),
                        follow_records(self.reconciler, self._record_changed),
                    )
                ]
                await self.stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await self.directory.stop()
            await self.kube.close()
            await self.client.close()
            await self.store.close()
        self.log.info("stopped")

    async def _watch(self) -> None:
        """kopf, once the API server knows our kinds; nodes first, or every Shard lacks them."""
        await wait_for_kinds(self.kube, KINDS_S, self._kinds_missing)
        self._kinds = ""
        while not await self._listed(PODS):
            await asyncio.sleep(KINDS_S)
        await self.machines.read()
        settings = self.settings
        watching = Watching(
            self.watched, settings.namespace, settings.node_selector, self._connect, self.log
        )
        await watching.run()

    async def _resync(self) -> None:
        """A watch that begins anew does not tell what was deleted meanwhile: lists do."""
        while True:
            await asyncio.sleep(self.settings.resync_s)
            for plural in (SHARDS, OPERATIONS, SNAPSHOTS, PODS):
                await self._listed(plural)

    async def _listed(self, plural: str) -> bool:
        try:
            found = await self.kube.get(self.kube.listing(plural))
        except ApiFailure as failure:
            self.log.info("not listed", kind=plural, why=str(failure))
            return False
        self.watched.relist(plural, found)
        return True

    def _kinds_missing(self, why: str) -> None:
        if why != self._kinds:
            self.log.warning("waits for the API server", why=why)
        self._kinds = why

    async def _probe(self) -> None:
        """Whether the store answers: idle shards ask nothing of it."""
        while True:
            try:
                await self.store.get(PROBE_KEY)
                failure = await why_full(self.store)
            except Unavailable as unavailable:
                failure = str(unavailable)
            if bool(failure) != bool(self.metadata_failure):
                tell = self.log.warning if failure else self.log.info
                tell("metadata store", answers=not failure, why=failure or None)
            self.metadata_failure = failure
            await asyncio.sleep(PROBE_S if not failure else 1.0)

    async def _be_present(self) -> None:
        """Tell people who look at etcd that this operator runs."""
        from shardlog.metadata.etcd.presence import Presence
        from shardlog.metadata.etcd.store import EtcdStore

        if isinstance(self.store, EtcdStore):
            since_ms = time.time_ns() // 1_000_000
            await Presence(self.store, self.settings.name, __version__, since_ms).run()

    def _why_not_ready(self) -> str:
        """The directory serves from the records; it does not need the API server to go on."""
        if not self.host.begun.is_set():
            return "the metadata has not been read yet"
        return self._kinds


async def why_full(store: MetadataStore) -> str:
    """Why etcd takes no writes though it answers: its own alarm, which a person has to end."""
    from shardlog.metadata.etcd.store import EtcdStore

    return await store.why_full() if isinstance(store, EtcdStore) else ""


def control_tls(settings: OperatorSettings) -> ControlTls | None:
    if settings.plain:
        return None
    return ControlTls(
        _read("tls_authority", settings.tls_authority),
        _read("tls_certificate", settings.tls_certificate),
        _read("tls_key", settings.tls_key),
    )


def _read(setting: str, path: str | None) -> bytes:
    try:
        return Path(path or "").read_bytes()
    except OSError as failure:
        raise BadSettings(f"{setting}: {path}: {failure.strerror}") from failure


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def open_store(settings: OperatorSettings) -> MetadataStore:
    """etcd need not answer yet."""
    if settings.metadata:
        from shardlog.metadata.sqlite import SqliteStore

        return await SqliteStore.open(Path(settings.metadata))
    from shardlog.metadata.etcd.settings import EtcdSettings, EtcdTls
    from shardlog.metadata.etcd.store import EtcdStore

    endpoints = tuple(each.strip() for each in (settings.etcd_endpoints or "").split(","))
    tls = None
    if settings.etcd_tls_authority or settings.etcd_tls_certificate:
        tls = EtcdTls(
            settings.etcd_tls_authority, settings.etcd_tls_certificate, settings.etcd_tls_key
        )
    password = ""
    if settings.etcd_user:
        password = _read("etcd_password_file", settings.etcd_password_file).decode().strip()
    user = settings.etcd_user or ""
    return EtcdStore(EtcdSettings(endpoints, settings.prefix, tls, user=user, password=password))


async def operate(settings: OperatorSettings) -> None:
    """Until a signal ends it."""
    process = OperatorProcess(settings, await open_store(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, process.stop.set)
    await process.run()
