"""A session is opened once, however long it takes until the shard has committed it."""

import threading
from pathlib import Path

import pytest

from client import cluster as cluster_module
from client.cluster import SHARD, Story, story, until
from shardlog.client import ClientLimits
from shardlog.client.failures import NoAnswer
from shardlog.protocol.entry import Kind
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog_node import host

IMPATIENT = ClientLimits(attempt_ms=40)


class SlowFile(RealFile):
    may_sync: threading.Event

    def sync(self) -> None:
        self.may_sync.wait()
        super().sync()


class SlowFiles(RealFiles):
    """All nodes' syncs wait while `may_sync` is not set."""

    may_sync = threading.Event()

    def open(self, path: str, *, write: bool = True) -> RealFile:
        file = SlowFile(super().open(path, write=write).fileno(), path)
        file.may_sync = self.may_sync
        return file


@pytest.fixture
def slow_disks(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The event that lets syncs end.  No leader hands over because its disk is slow."""
    monkeypatch.setattr(host, "BACKLOG_TICKS", 1 << 30)
    monkeypatch.setattr(cluster_module, "RealFiles", SlowFiles)
    SlowFiles.may_sync.set()
    return SlowFiles.may_sync


def registered(s: Story) -> int:
    headers = s.cluster.nodes[s.leader].replicas[SHARD].replica.log.headers
    return sum(header.kind is Kind.REGISTER for header in headers)


async def attempts_given_up(s: Story, producer: object, number: int) -> None:
    delivery = producer._delivery  # type: ignore[attr-defined]
    for _ in range(number):
        delivery._last = None
        await until(lambda: isinstance(delivery._last, NoAnswer))


def test_B2_a_producer_gets_its_session_though_commits_take_longer_than_attempts(
    tmp_path: Path, slow_disks: threading.Event
):
    @story(tmp_path, client_limits=IMPATIENT)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD)
        slow_disks.clear()
        try:
            future = producer.send(b"first")
            await attempts_given_up(s, producer, 4)
            assert registered(s) == 1, "no offsets are given to registrations that are abandoned"
        finally:
            slow_disks.set()
        assert await future > 0
        assert registered(s) == 1
        await producer.close()
