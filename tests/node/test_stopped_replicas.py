"""Whatever goes wrong in a step stops the replica; its successor finds files that nobody writes."""

import asyncio
import threading
from pathlib import Path

from node.cluster import PLAN, Cluster
from shardlog.checksum import seal_body
from shardlog.protocol.entry import Header
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.messages import Append, Appended, Envelope, Message, Read
from shardlog.storage.failures import TooManyOpenFiles
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog.storage.volume import Volume


def envelope(message: Message) -> Envelope:
    return Envelope("orders", "client", 0, "a", 0, message)


def append(session: int, request: int, body: bytes = b"x") -> Envelope:
    return envelope(Append(session, request, 1, body, seal_body(body)))


def stored(directory: Path) -> tuple[Header, ...]:
    """What a start finds; raises if it is not a log."""
    volume = Volume(RealFiles(), str(directory / "a"), "a", PLAN)
    try:
        _, recovered = volume.open("orders", lambda token: None, lambda failure: None)
        assert recovered is not None
        assert not recovered.marks
        return recovered.headers
    finally:
        volume.close()


class Exhausted(RealFiles):
    """No file can be opened while `exhausted`."""

    exhausted = False

    def open(self, path: str, *, write: bool = True) -> RealFile:
        if self.exhausted:
            raise TooManyOpenFiles(path)
        return super().open(path, write=write)


def test_M2_a_read_that_fails_in_a_step_does_not_lose_the_append_that_came_with_it(tmp_path: Path):
    files = Exhausted()
    answers: list[Message] = []

    async def story() -> None:
        cluster = Cluster(tmp_path, "")
        async with cluster.running():
            host = cluster.start("a", files)
            cluster.names = ["a"]
            await cluster.create("orders")
            session = await cluster.session("a", "orders")
            bases = [await cluster.append("a", "orders", session, n) for n in range(1, 6)]
            hosted = host.replicas["orders"]
            while hosted.store.fresh or hosted.store.waiting or hosted.store.running:
                await asyncio.sleep(0.01)
            host.send_out = lambda sent: answers.append(sent.message)
            files.exhausted = True
            host.volume.handles.close_idle()
            host.receive_all("orders", [envelope(Read(9, bases[0], 1)), append(session, 6)])
            files.exhausted = False
            host.receive_all("orders", [append(session, 7)])
            assert hosted.stopped
            while "orders" in host.failed:
                await asyncio.sleep(0.01)

    asyncio.run(story())
    requests = {header.request for header in stored(tmp_path)}
    acknowledged = {each.request for each in answers if isinstance(each, Appended)}
    assert acknowledged <= requests


class Gated(RealFiles):
    """Syncs wait for `gate`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0

    def open(self, path: str, *, write: bool = True) -> RealFile:
        return GatedFile(super().open(path, write=write), self)


class GatedFile(RealFile):
    def __init__(self, file: RealFile, files: Gated) -> None:
        super().__init__(file.fileno(), file.path)
        self.files = files

    def sync(self) -> None:
        self.files.waiting += 1
        self.files.gate.wait()
        self.files.waiting -= 1
        super().sync()


def test_a_stopped_replica_writes_nothing_behind_its_successor(tmp_path: Path):
    files = Gated()

    async def story() -> int:
        cluster = Cluster(tmp_path, "")
        async with cluster.running():
            host = cluster.start("a", files)
            cluster.names = ["a"]
            await cluster.create("orders")
            session = await cluster.session("a", "orders")
            last = await cluster.append("a", "orders", session, 1)
            files.gate.clear()
            host.receive_all("orders", [append(session, 2)])
            while not files.waiting:
                await asyncio.sleep(0.01)
            host.receive_all("orders", [append(session, n, bytes(9000)) for n in range(3, 30)])
            old = host.replicas["orders"]
            old.stop(ImpossibleState("an invariant is broken"))
            await asyncio.sleep(3 * host.host_limits.reopen_ms / 1000)
            assert "orders" in host.failed, "its predecessor is still at work"
            files.gate.set()
            while (hosted := host.replicas.get("orders")) is None or hosted.replica.lead is None:
                await asyncio.sleep(0.01)
            while not hosted.replica.lead.serving:
                await asyncio.sleep(0.01)
            begun = await cluster.session("a", "orders")
            for request in range(1, 40):
                last = await cluster.append("a", "orders", begun, request)
            return last

    last = asyncio.run(story())
    assert stored(tmp_path)[-1].base == last
