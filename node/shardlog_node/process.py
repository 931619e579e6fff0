"""The node process: its parts put together, and its life from start to stop.

A start claims the volume first, then opens what is on it, then listens; whoever can reach the node
finds its replicas opened.  A stop goes the other way round, and before that it waits, within a
bound, until other nodes lead what this one led: clients then lose no time over it.  Nothing depends
on any of this: what was acknowledged is on disk, and a killed process leaves it there.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry

from shardlog import __version__
from shardlog.process.logs import logger_of
from shardlog.process.settings import BadSettings, load_cluster_key
from shardlog.protocol.effects import Limits
from shardlog.protocol.messages import Envelope, Trim
from shardlog.storage.plan import Plan
from shardlog.storage.volume import Volume, VolumeLimits
from shardlog.transport.control import ControlLimits, ControlServer
from shardlog.transport.control_calls import Addresses, NewsRequest, NodeNews
from shardlog.transport.failures import DeadlineExceeded, Rejected, Unreachable
from shardlog_node.clock import NodeClock
from shardlog_node.data_plane import DataPlane, PlaneLimits
from shardlog_node.host import NodeHost
from shardlog_node.keeping import Keeper
from shardlog_node.log_service import LogService
from shardlog_node.logs import Watch
from shardlog_node.news import News
from shardlog_node.observing import NodeCollector, Observing, SyncTimes, TimedFiles
from shardlog_node.pacing import PaceLimits
from shardlog_node.scrubbing import Scrubber, ScrubLimits
from shardlog_node.settings import NodeSettings
from shardlog_node.snapshots import Snapshots
from shardlog_node.tls import load_tls

LOOK_MS = 20
CALLS_GRACE_MS = 1000

LIMITS = Limits(
    rest_ms=500,
    batch_entries_max=256,
    inflight_entries_max=1024,
    resend_entries_ms=1500,
    settle_bytes=512 << 10,
    unsynced_entries_max=8192,
    fetch_entries_max=512,
    fetch_retry_ms=2000,
    appends_inflight_max=1024,
    sessions_max=256,
    replies_max=32,
    session_idle_ms=10_000,
)
"""Of every replica.  How many sessions and replies are kept, a log names when it begins."""

UNANSWERED = (Trim,)
"""Calls that a replica takes without a word."""


class NodeProcess:
    """`start`, then `drain`, then `stop`; `hurry` ends the waiting."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.name = settings.name
        self.draining = False
        self.listening = False
        self.addresses: dict[str, str] = {}
        self.log = logger_of("node", node=settings.name)
        self._hurried = asyncio.Event()
        self._parts = AsyncExitStack()
        self._hosting: asyncio.Task[None]
        self._beside: list[asyncio.Task[None]] = []

        tls = load_tls(settings)
        key = load_cluster_key(settings.cluster_key_file)
        self.clock = NodeClock(_since_boot_ns, time.time_ns)
        registry = CollectorRegistry()
        times = SyncTimes(registry)
        volume = _volume(settings, TimedFiles(times))
        self.plane = DataPlane(
            self.name,
            _plane_limits(settings),
            time.time_ns,
            key,
            tls.accepting if tls else None,
            tls.calling if tls else None,
            self._sampled,
        )
        self.host = NodeHost(
            self.name,
            volume,
            self.plane.send,
            self.clock.now_ms,
            lambda: secrets.randbits(63) or 1,
            replace(LIMITS, inflight_bytes_max=int(settings.follower_inflight_bytes_max)),
            pace_limits=PaceLimits(
                int(settings.catch_up_bytes_per_s_max), settings.catch_up_percent
            ),
        )
        self.plane.attach_host(self.host)
        self._news = News(self.host, secrets.randbits(63) or 1)
        self._control = ControlServer(
            self._handle,
            Snapshots(self.host).fetch,
            ControlLimits(),
            tls.control if tls else None,
            self._answer_at_once,
            self._tell_news,
            key=key,
            name=self.name,
        )
        self._public: LogService | None = None
        if settings.public_port is not None:
            self._public = LogService(
                self.plane, tls.control if tls else None, settings.public_addresses
            )
        self._watch = Watch(
            self.host,
            self.clock,
            times.longest_ms,
            lambda: (self.plane.refused, self.plane.refused_last),
            self.log,
        )
        self._scrubber = Scrubber(
            self.host,
            ScrubLimits(settings.scrub_core_percent / 100, int(settings.scrub_bytes_per_s)),
        )
        self._keeper = Keeper(self.host)
        registry.register(
            NodeCollector(self.host, self.plane, self.clock, self._watch, times, self._scrubber)
        )
        self._observing = Observing(self, registry)

    @property
    def alive(self) -> bool:
        return not self._hosting.done()

    def _sampled(self, node: str, sent_ns: int, received_ns: int, wall_ns: int) -> None:
        """The loop's clock stands still while the machine sleeps; the node's does not."""
        asleep_ns = _since_boot_ns() - time.monotonic_ns()
        self.clock.sample(node, sent_ns + asleep_ns, received_ns + asleep_ns, wall_ns)

    # --- start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises what keeps the node from running, with everything closed again."""
        try:
            self._hosting = asyncio.create_task(self.host.run())
            self._parts.push_async_callback(_ended, self._hosting)
            await asyncio.sleep(0)  # in which the replicas are opened
            if self._hosting.done():
                self._hosting.result()
            await self._listen()
            beside = (
                self._watch.run(), self._scrubber.run(), self._keeper.run(), self.plane.tend()
            )  # fmt: skip
            for each in beside:
                task = asyncio.create_task(each)
                self._beside.append(task)
                self._parts.push_async_callback(_ended, task)
        except BaseException:
            await self._parts.aclose()
            raise
        self.listening = True

    async def _listen(self) -> None:
        settings, parts = self.settings, self._parts
        parts.push_async_callback(self._observing.stop)
        self.addresses["http"] = await _bound(
            "http_port", self._observing.start(settings.http_host, settings.http_port)
        )
        parts.push_async_callback(self.plane.stop)
        self.addresses["data"] = await _bound(
            "data_port", self.plane.start(settings.data_host, settings.data_port)
        )
        self.addresses["control"] = await _bound("control_port", self._start_control())
        parts.push_async_callback(self._stop_control)
        if self._public is not None:
            parts.push_async_callback(self._stop_public, self._public)
            self.addresses["public"] = await _bound("public_port", self._start_public(self._public))

    async def _start_control(self) -> tuple[str, int]:
        host = self.settings.control_host
        return host, await self._control.start(_bracketed(host), self.settings.control_port)

    async def _stop_control(self) -> None:
        await self._control.stop(0 if self._hurried.is_set() else CALLS_GRACE_MS)

    async def _start_public(self, public: LogService) -> tuple[str, int]:
        host = self.settings.public_host
        return host, await public.start(_bracketed(host), self.settings.public_port or 0)

    async def _stop_public(self, public: LogService) -> None:
        await public.stop(0 if self._hurried.is_set() else CALLS_GRACE_MS)

    # --- the control plane -----------------------------------------------------------------------

    async def _handle(self, envelope: Envelope, addresses: Addresses) -> Envelope | None:
        """A call may reach whoever has got the address meanwhile; only its own name counts."""
        if envelope.dst != self.name:
            raise Rejected(f"this is {self.name}, not {envelope.dst}")
        self.plane.learn(addresses)
        if isinstance(envelope.message, UNANSWERED):
            self.host.receive(envelope)
            return None
        try:
            return await self.host.call(envelope, self.settings.call_timeout_ms)
        except TimeoutError as failure:
            asked = type(envelope.message).__name__
            raise DeadlineExceeded(f"{self.name} has no answer to {asked}") from failure

    def _answer_at_once(self, envelope: Envelope) -> Envelope | None:
        return self.host.answer_at_once(envelope) if envelope.dst == self.name else None

    def _tell_news(self, asked: NewsRequest) -> NodeNews:
        if asked.node != self.name:
            raise Rejected(f"this is {self.name}, not {asked.node}")
        return self._news.tell(asked)

    # --- stop ------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, or the replicas cannot be run any more, which raises."""
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait(
            {stopping, self._hosting, *self._beside}, return_when=asyncio.FIRST_COMPLETED
        )
        stopping.cancel()
        for task in self._beside:
            if task.done():
                task.result()

    def hurry(self) -> None:
        self._hurried.set()

    async def drain(self) -> None:
        """Say so, and wait until others lead what this node led, if there are others."""
        self.draining = self.host.draining = True
        await self._control.set_serving(False)
        if self._public is not None:
            await self._public.set_serving(False)
        deadline = time.monotonic() + self.settings.stop_timeout_ms / 1000
        while self.alive and not self._hurried.is_set() and time.monotonic() < deadline:
            if not self.led_with_others():
                return
            await asyncio.sleep(LOOK_MS / 1000)

    def led_with_others(self) -> list[str]:
        """Shards that this node leads and that somebody else could lead."""
        replicas = self.host.replicas.items()
        return [
            shard
            for shard, hosted in replicas
            if hosted.replica.lead is not None and len(hosted.replica.lead.ensemble) > 1
        ]

    async def stop(self) -> None:
        """Raises what ended the replicas, if they did not end by this."""
        self.listening = False
        failed = self._hosting.done()
        await self._parts.aclose()
        if failed:
            self._hosting.result()


async def serve(settings: NodeSettings) -> None:
    """A node, until it is told to stop."""
    stop = asyncio.Event()
    node = NodeProcess(settings)

    def told(number: signal.Signals) -> None:
        node.log.info("stopping", signal=number.name, at_once=stop.is_set())
        if stop.is_set():
            node.hurry()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
    await node.start()
    ready = {"event": "ready", "node": node.name, "version": __version__, **node.addresses}
    with suppress(BrokenPipeError):  # nobody has to listen
        print(json.dumps(ready), flush=True)
    await node.run(stop)
    if node.alive:
        await node.drain()
        node.log.info("drained", still_led=node.led_with_others())
    await node.stop()
    node.log.info("stopped")


# --- parts ---------------------------------------------------------------------------------------


def _volume(settings: NodeSettings, files: TimedFiles) -> Volume:
    directory = Path(settings.directory)
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not there.is_dir():
        raise BadSettings(f"directory: {there}: not a directory")
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise BadSettings(f"directory: {there}: not writable")
    plan = Plan(size_min=int(settings.segment_bytes_min), size_max=int(settings.segment_bytes_max))
    limits = VolumeLimits(
        workers=settings.sync_threads,
        on_loop_us_max=settings.sync_on_loop_us_max,
        open_files_max=settings.open_files_max,
        recent_bytes_max=int(settings.recent_bytes_max),
    )
    return Volume(files, str(directory), settings.name, plan, limits)


def _plane_limits(settings: NodeSettings) -> PlaneLimits:
    """Half of what may wait on a connection has to hold what a follower may be sent."""
    usual = PlaneLimits()
    of_client = int(settings.client_inflight_bytes_max)
    of_follower = int(settings.follower_inflight_bytes_max)
    return replace(
        usual,
        connection=replace(
            usual.connection,
            outgoing_bytes_max=max(of_client, 4 * of_follower),
            incoming_bytes_max=of_client,
        ),
        connections_max=settings.connections_max,
        entry_bytes_max=int(settings.entry_bytes_max),
        inflight_bytes_max=int(settings.node_inflight_bytes_max),
    )


def _since_boot_ns() -> int:
    """Of the clocks that are never set, the one that goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


async def _bound(setting: str, starting: Awaitable[tuple[str, int]]) -> str:
    """Where it listens; a failure says which setting it is about."""
    try:
        host, port = await starting
    except Unreachable as failure:
        raise Unreachable(f"{setting}: {failure}") from failure
    return f"{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    """As it stands before a port: an address of IPv6 has colons itself."""
    return f"[{host}]" if ":" in host else host


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
