"""The client for scripts, in a thread beside a cluster."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

import pytest

from client.cluster import SHARD, Story, story
from shardlog.client import END, Range
from shardlog.client.blocking import Client
from shardlog.client.failures import (
    Closed,
    DeadlineExceeded,
    InvalidArgument,
    InvalidRecord,
    NoSuchShard,
)


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
            tail.close()
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


class Cycle:
    """Garbage that only the collector finds, with a reader that is not at its end."""

    def __init__(self, records: Any) -> None:
        self.records = records
        self.me = self


def test_point_1_the_garbage_collector_may_end_a_reader_in_the_thread_of_the_loop(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client:
            with client.producer(SHARD) as producer:
                producer.append_many([b"one", b"two"])
            gc.disable()
            try:
                for reader in (client.read(SHARD), client.tail(SHARD), client.batches(SHARD)):
                    next(Cycle(reader).records)
                del reader
                client._thread.call(gc.collect)
            finally:
                gc.enable()
            assert client.end(SHARD) > 0
            wait_until(lambda: client._thread.call(lambda: not client._client._streams))

    script(tmp_path, written)


def test_point_1_the_garbage_collector_may_end_a_reader_while_a_call_is_handed_over(
    tmp_path: Path,
):
    def written(url: str) -> None:
        with Client(url) as client, client.producer(SHARD) as producer:
            producer.append_many([b"one", b"two"])
            before = gc.get_threshold()
            gc.set_threshold(1)
            try:
                for _ in range(20):
                    next(Cycle(client.read(SHARD)).records)
                    futures = [producer.send(b"x", b"k") for _ in range(100)]
                    assert futures[-1].result(30) > 0
            finally:
                gc.set_threshold(*before)

    script(tmp_path, written)


def test_point_1_a_call_that_would_wait_for_itself_is_refused(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client, client.producer(SHARD) as producer:
            found: Future[BaseException] = Future()

            def callback(future: Future[int]) -> None:
                try:
                    producer.append(b"two")
                except BaseException as failure:
                    found.set_result(failure)

            producer.send(b"one").add_done_callback(callback)
            assert isinstance(found.result(30), InvalidArgument)
            with pytest.raises(InvalidArgument):
                client._thread.call(client.close)

    script(tmp_path, written)


def test_point_10_a_failure_is_raised_once(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client:
            producer = client.producer("other")
            with pytest.raises(NoSuchShard):
                producer.append(b"x")
            producer.close()
        with pytest.raises(NoSuchShard), Client(url) as client:
            client.producer("other").send(b"nobody looks at this one")
        with pytest.raises(LookupError):
            lookup_error_while_sending(url)

    script(tmp_path, written)


def test_point_3_a_bad_record_is_refused_at_once(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client, client.producer(SHARD) as producer:
            value = bytearray(b"value")
            futures = [producer.send(value)]
            value[:] = b"other"
            for bad in ({"key": "text"}, {"headers": {"a": b"b"}}, {"timestamp_ms": 1.5}):
                with pytest.raises(InvalidRecord):
                    producer.send(b"bad", **bad)
            with pytest.raises(InvalidRecord):
                producer.append_many([b"good", "text"])  # type: ignore[list-item]
            futures.append(producer.send(b"good"))
            assert futures[1].result(30) == futures[0].result(30) + 1
            assert [record.value for record in client.read(SHARD)] == [b"value", b"good"]

    script(tmp_path, written)


def lookup_error_while_sending(url: str) -> None:
    with Client(url) as client:
        client.producer("other").send(b"nobody looks at this one")
        raise LookupError


UNCLOSED = """
import sys
from shardlog.client.blocking import Client

client = Client(sys.argv[1])
producer = client.producer(sys.argv[2], buffer_bytes_max=500)
for n in range(300):
    producer.send(b"%d" % n)
"""


def unclosed(url: str, shard: str) -> str:
    """What the program says on its error output."""
    command = [sys.executable, "-c", UNCLOSED, url, shard]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stderr


def test_point_11_a_client_that_is_not_closed_flushes_at_exit(tmp_path: Path):
    def written(url: str) -> None:
        assert unclosed(url.replace("127.0.0.1", "localhost"), SHARD) == ""
        with Client(url) as client:
            values = [record.value for record in client.read(SHARD)]
        assert values == [b"%d" % n for n in range(300)]
        told = unclosed(url, "other")
        assert "not closed before the program ended: there is no shard 'other'" in told

    script(tmp_path, written)


def test_polling(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client, client.producer(SHARD) as producer:
            producer.append_many([b"%d" % n for n in range(10)])
            producer.append(b"10", headers=[("a", b"b")])
            with client.tail(SHARD) as tail:
                found = [tail.poll(30_000, 4), tail.poll(30_000, 4), tail.poll(30_000, 4)]
                while len(found[2]) < 3:
                    found[2] += tail.poll(30_000, 4)
                assert [len(each) for each in found] == [4, 4, 3]
                assert [each.value for part in found for each in part] == [
                    b"%d" % n for n in range(11)
                ]
                assert tail.poll(1) == []
                producer.append(b"11")
                assert [each.value for each in tail.poll(30_000)] == [b"11"]
            with pytest.raises(Closed):
                wait_until(lambda: tail.poll(1))
            assert len(client.read(SHARD).poll(30_000, 1)) == 1
            with client.read(SHARD, END) as read:
                assert read.poll(30_000) == []

    script(tmp_path, written)


def test_reading_goes_on_where_a_loop_was_left(tmp_path: Path):
    def written(url: str) -> None:
        with Client(url) as client, client.producer(SHARD) as producer:
            futures = [producer.send(b"%d" % n, headers=[("a", b"b")]) for n in range(10)]
            producer.flush()
            assert all(future.done() for future in futures)
            records = client.read(SHARD)
            first = next(records).value
            for record in records:
                second = record.value
                break
            assert [first, second, *[each.value for each in records]] == [
                b"%d" % n for n in range(10)
            ]

    script(tmp_path, written)


def wait_until(wanted: Callable[[], object]) -> None:
    """Ends with the test's own time limit, if it never comes true."""
    while not wanted():
        pass
