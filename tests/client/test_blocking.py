"""The client for scripts, in a thread beside a cluster."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path

import pytest

from client.cluster import SHARD, Story, story
from shardlog.client import Range
from shardlog.client.blocking import Client
from shardlog.client.failures import Closed, DeadlineExceeded, InvalidArgument, NoSuchShard


def script(tmp_path: Path, written: Callable[[str], None]) -> None:
    """Run it in a thread, against the directory of a cluster."""

    @story(tmp_path)
    async def _(s: Story) -> None:
        await asyncio.to_thread(written, s.cluster.url)


def test_appending_and_reading(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client:
            with client.producer(SHARD, linger_ms=1) as producer:
                first = producer.append(b"one", b"key")
                futures = [producer.send(b"%d" % n) for n in range(10)]
                offsets = [future.result(10) for future in futures]
                ranges = producer.append_many([b"many"] * 100)
                more = producer.send_many([b"more"] * 5).result(10)
                producer.flush()
            assert offsets == list(range(first + 1, first + 11))
            assert ranges == [Range(first + 11, 100)]
            assert more == [Range(first + 111, 5)]
            records = list(client.read(SHARD))
            assert [record.offset for record in records] == list(range(first, first + 116))
            assert client.end(SHARD) == first + 116
            assert client.first(SHARD) == 0
            assert client.locate(SHARD, 1 << 60) == first + 116
            assert sum(each.batch.count for each in client.batches(SHARD)) == 116
            tail = client.tail(SHARD, first + 110)
            assert [next(tail).offset for _ in range(6)] == list(range(first + 110, first + 116))
            tail.close()  # type: ignore[attr-defined]
            assert next(iter(client.tail_batches(SHARD))).base_offset == first

    script(tmp_path, written)


def test_what_is_sent_stays_in_order_when_there_is_no_room(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client:
            with client.producer(SHARD, buffer_bytes_max=500) as producer:
                futures = [producer.send(b"%050d" % n) for n in range(1_000)]
                producer.flush()
                assert all(future.done() for future in futures)
            values = [record.value for record in client.read(SHARD)]
            assert values == [b"%050d" % n for n in range(1_000)]

    script(tmp_path, written)


def test_a_client_that_is_closed_sends_what_waits_for_room(tmp_path: Path):
    def written(url: str) -> None:
        client = Client(url)
        producers = [client.producer(SHARD, buffer_bytes_max=500) for _ in range(2)]
        futures = [each.send(b"%050d" % n) for n in range(500) for each in producers]
        client.close()
        assert all(future.done() for future in futures)
        offsets = [future.result() for future in futures]
        assert offsets[::2] == sorted(offsets[::2])
        with pytest.raises(Closed):
            producers[0].send(b"late")
        producers[0].close()
        with Client(url) as other:
            found = {record.offset: record.value for record in other.read(SHARD)}
        assert found == {at: b"%050d" % (n // 2) for n, at in enumerate(offsets)}

    script(tmp_path, written)


def test_every_future_ends_when_a_client_is_closed(unused_address: str):
    client = Client(f"shardlog://{unused_address}")
    producer = client.producer(SHARD, buffer_bytes_max=10, deadline_ms=300)
    futures = [producer.send(bytes(20)) for _ in range(20)]
    with pytest.raises(DeadlineExceeded):
        client.close()
    assert not wait_for(futures, 0).not_done
    failures = [future.exception() for future in futures]
    assert all(isinstance(failure, DeadlineExceeded | Closed) for failure in failures)
    assert isinstance(failures[-1], Closed)


def test_readers_in_other_threads_are_told_that_the_client_is_closed(tmp_path: Path):
    def written(url: str) -> None:
        client = Client(url)
        client.producer(SHARD).append(b"one")
        with ThreadPoolExecutor(1) as threads:
            tail = client.tail(SHARD)
            assert next(tail).value == b"one"
            waiting = threads.submit(next, tail)
            asking = client._thread.submit(asyncio.Event().wait())
            client.close()
            with pytest.raises(Closed):
                waiting.result()
        with pytest.raises(Closed):
            asking.result()

    script(tmp_path, written)


def test_failures_are_the_same(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client:
            with pytest.raises(NoSuchShard):
                client.end("other")
            with pytest.raises(NoSuchShard):
                list(client.read("other"))
            with pytest.raises(InvalidArgument):
                client.producer(SHARD, inflight_requests_max=33)
        with pytest.raises(Closed):
            client.end(SHARD)
        client.close()

    script(tmp_path, written)


def test_a_url_that_is_none_leaves_no_thread():
    with pytest.raises(InvalidArgument, match="neither"):
        Client("ftp://somewhere")
