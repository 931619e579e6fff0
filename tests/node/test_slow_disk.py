"""A leader whose own disk is the slowest: two others commit without it, and clients wait for it.

They are not refused, and nothing that waits is lost or changes its place.
"""

import asyncio
import threading
from pathlib import Path

import pytest

from node.cluster import Cluster
from shardlog.checksum import seal_body
from shardlog.protocol.messages import Append, Appended, Envelope
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog_node import host

AT_ONCE = 64


class SlowFile(RealFile):
    """Its syncs wait while `may_sync` is not set."""

    may_sync: threading.Event

    def sync(self) -> None:
        self.may_sync.wait()
        super().sync()


class SlowFiles(RealFiles):
    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()

    def open(self, path: str, *, write: bool = True) -> RealFile:
        file = SlowFile(super().open(path, write=write).fileno(), path)
        file.may_sync = self.may_sync
        return file


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow leader would hand over while this machine is busy with something else."""
    monkeypatch.setattr(host, "BACKLOG_TICKS", 1 << 30)


@pytest.mark.usefixtures("patience")
def test_appends_wait_for_the_leaders_own_disk_and_are_not_refused(tmp_path: Path):
    async def story() -> None:
        disks = {name: SlowFiles() for name in "abc"}
        cluster = Cluster(tmp_path, "a b c", files=disks)
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            hosted = cluster.nodes[leader].replicas["orders"]
            disks[leader].may_sync.clear()
            try:
                waiting: list[asyncio.Task[Envelope]] = []
                while not hosted.gate.closed:
                    waiting += sent(cluster, leader, session, len(waiting))
                    while not hosted.gate.closed and not waiting[-1].done():
                        await asyncio.sleep(0)
                held = sent(cluster, leader, session, len(waiting))
                await asyncio.sleep(0)
                assert not any(task.done() for task in held)
            finally:
                disks[leader].may_sync.set()
            answers = [each.message for each in await asyncio.gather(*waiting, *held)]
            bases = [each.base for each in answers if isinstance(each, Appended)]
            assert bases == list(range(bases[0], bases[0] + len(answers)))
            assert not hosted.gate.narrow

    asyncio.run(story())


def sent(cluster: Cluster, node: str, session: int, after: int) -> list[asyncio.Task[Envelope]]:
    """So many more appends, one behind the other."""
    body = b"record"
    messages = [
        Append(session, number, 1, body, seal_body(body))
        for number in range(after + 1, after + 1 + AT_ONCE)
    ]
    return [
        asyncio.create_task(
            cluster.nodes[node].call(Envelope("orders", "client", 0, node, 0, message), 30_000)
        )
        for message in messages
    ]
