"""A cluster of real processes in a directory of its own, as `shardlog local up` starts it.

Three nodes, the coordinator and the supervisor, with the settings that everybody gets.  Whatever
happens, all of them are ended by their pid files and their files are removed.
"""

from __future__ import annotations

import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from limit import Yardstick
from limit_load import Lane, Opening, Target

from shardlog.cli.cluster import Cluster as Coordinator
from shardlog.local.change_lock import changing
from shardlog.local.layout import Layout
from shardlog.local.pid_file import PidFile
from shardlog.local.starting import await_ready, prepare, start_supervisor
from shardlog.local.taking_down import delete, stop_all
from shardlog.transport.frame_messages import to_message
from shardlog.transport.frames import FIXED, FRAME_BYTES_MAX, Frame, FrameType, encode_register
from shardlog.transport.handshake import Attach, Hello, Role, encode_attach, encode_hello

START_TIMEOUT_MS = 60_000
STOP_GRACE_MS = 5_000
WHOLE_TIMEOUT_S = 60.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Cluster:
    layout: Layout
    url: str

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(self.url)

    def create(self, shard: str, kept_bytes: int | None = None) -> None:
        """Of which no more than so many bytes are kept."""
        body: dict[str, Any] = {"name": shard, "replicas": 3}
        if kept_bytes is not None:
            body["retention"] = {"bytes": kept_bytes, "time_ms": None}
        self.coordinator.post("shards", body=body)
        self.until_whole(shard)

    def shard(self, shard: str) -> Any:
        return self.coordinator.shard(shard)

    def until_whole(self, shard: str) -> Any:
        """The shard, once it is led and every replica follows closely."""

        def is_whole(found: Any) -> bool:
            if found["status"] != "STEADY" or found["leader"] is None:
                return False
            roles = [each["role"] for each in found["reports"] if each["epoch"] == found["epoch"]]
            return sorted(roles) == ["FOLLOWER", "FOLLOWER", "LEADER"]

        return self._until(lambda: self.coordinator.get("shards", shard, "status"), is_whole)

    def _until(self, look: Callable[[], Any], done: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + WHOLE_TIMEOUT_S
        while not done(found := look()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not whole after {WHOLE_TIMEOUT_S:.0f} s: {found}")
            time.sleep(LOOK_S)
        return found

    def process(self, node: str) -> psutil.Process:
        pid = PidFile(self.layout.pid_file(node)).pid()
        if pid is None:
            raise RuntimeError(f"{node} does not run")
        return psutil.Process(pid)

    def send_signal(self, node: str, number: signal.Signals) -> None:
        if not PidFile(self.layout.pid_file(node)).signal(number):
            raise RuntimeError(f"{node} does not run")

    def under_load(self, shard: str) -> Yardstick:
        """The shard's leader as something to append to, and its processes."""
        found = self.until_whole(shard)
        leader = found["leader"]
        host, _, port = found["addresses"][leader].rpartition(":")
        target = Target(host, int(port), opening_of(shard))
        others = tuple(self.process(each) for each in found["ensemble"] if each != leader)
        return Yardstick(target, self.process(leader), others)


@contextmanager
def cluster(directory: str) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(dir=directory) as within:
        layout = Layout(Path(within, "cluster").absolute())
        try:
            with changing(layout, START_TIMEOUT_MS, make=True):
                made = prepare(layout, 3)
                start_supervisor(layout)
            await_ready(layout, made, START_TIMEOUT_MS, lambda name, serves: None)
            yield Cluster(layout, made.url)
        finally:
            stop_all(layout, STOP_GRACE_MS)
            delete(layout)


class Refused(Exception):  # noqa: N818 - named after what happened
    """The node leads no more, or not yet."""


def opening_of(shard: str) -> Opening:
    """What a lane says before its first append: who it is, which shard, and a session, please."""

    async def opening(lane: Lane) -> None:
        hello = Hello(Role.CLIENT, "bench", FRAME_BYTES_MAX)
        lane.transport.writelines(encode_hello(hello))
        await _next(lane, FrameType.WELCOME)
        lane.transport.writelines(encode_attach(lane.channel, Attach(shard)))
        await _next(lane, FrameType.ATTACHED)
        lane.transport.writelines(encode_register(lane.channel, 1 + secrets.randbits(62)))
        registered = await _next(lane, FrameType.REGISTERED)
        _, lane.session = FIXED[FrameType.REGISTERED].unpack(registered.payload)

    return opening


async def _next(lane: Lane, kind: FrameType) -> Frame:
    while True:
        frame = await lane.others.get()
        if frame.type == kind:
            return frame
        if frame.type == FrameType.REFUSED:
            raise Refused(str(to_message(frame)))
        if frame.type != FrameType.PING:
            raise RuntimeError(f"{FrameType(frame.type).name} came instead of {kind.name}")
