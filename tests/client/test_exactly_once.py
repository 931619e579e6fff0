"""Once and in order, whatever happens to leaders and connections."""

import asyncio
from pathlib import Path

import pytest

from client.cluster import LIMITS, SHARD, Story, story, until
from shardlog.client import ClientLimits
from shardlog.client.failures import (
    Busy,
    DeadlineExceeded,
    NumberTaken,
    RecordTooLarge,
    SessionEvicted,
)
from shardlog.protocol.effects import Limits
from shardlog.transport.batch import BatchBuilder
from shardlog.transport.frames import FRAME_BYTES_MAX
from shardlog_node.data_plane import PlaneLimits


def batch_of(value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(value)
    return builder.body()


FAST = ClientLimits(attempt_ms=300, ping_after_ms=100, silence_ms=300, connect_ms=300)


@pytest.mark.parametrize("by_addresses", [False, True])
def test_T6_a_leader_stopped_under_load(tmp_path: Path, by_addresses: bool):
    @story(tmp_path, by_addresses=by_addresses, client_limits=FAST)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            futures: list[asyncio.Future[int]] = []

            async def load() -> None:
                while len(futures) < 1500:
                    futures.append(producer.send(b"%d" % len(futures)))
                    await asyncio.sleep(0.001)

            loading = asyncio.create_task(load())
            await until(lambda: len(futures) > 300)
            await s.cluster.stop(s.leader)
            await loading
            offsets = [await future for future in futures]
        records = await s.records()
        assert [record.value for record in records] == [b"%d" % n for n in range(1500)]
        assert [record.offset for record in records] == offsets
        assert await s.cluster.leader(SHARD, s.leader) != s.leader


def test_T6_replies_are_lost_and_the_leader_fails(tmp_path: Path):
    """The new leader answers the retries with the offsets that the first tries got."""

    @story(tmp_path, proxied=True, client_limits=FAST)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1)
        first = await producer.append(b"first")
        session = producer.session
        s.proxies[s.leader].to_client = False
        futures = [producer.send(b"%d" % n) for n in range(20)]
        await until(lambda: s.cluster.end(s.leader) == first + 21)
        await until(lambda: all(s.cluster.end(name) == first + 21 for name in s.cluster.nodes))
        await s.cluster.stop(s.leader)
        assert [await future for future in futures] == list(range(first + 1, first + 21))
        assert producer.session == session
        records = await s.records()
        assert [record.value for record in records[1:]] == [b"%d" % n for n in range(20)]
        assert len(records) == 21


def test_T6_no_more_requests_are_unanswered_than_a_leader_keeps_replies_for(tmp_path: Path):
    @story(tmp_path, proxied=True, client_limits=FAST)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1)
        first = await producer.append(b"first")
        s.proxies[s.leader].to_client = False
        futures = [producer.send(b"%d" % n) for n in range(100)]
        await until(lambda: s.cluster.end(s.leader) == first + 33)
        s.proxies[s.leader].to_client = True
        offsets = [await future for future in futures]
        assert offsets == sorted(offsets)
        assert [record.value for record in await s.records()][1:] == [b"%d" % n for n in range(100)]


def test_S04_another_client_that_takes_the_numbers_of_a_session(tmp_path: Path):
    """Nothing is acknowledged that is not in the log, and the producer goes on in a new session."""

    @story(tmp_path, client_limits=FAST)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1)
        await producer.append(b"first")
        session = producer.session
        async with s.client.numbered(SHARD, session, 1) as thief:
            for n in range(3):
                await thief.append(batch_of(b"stolen %d" % n), 1)
        told = {value: producer.send(value) for value in (b"%d" % n for n in range(8))}
        answers = dict(
            zip(told, await asyncio.gather(*told.values(), return_exceptions=True), strict=True)
        )
        refused = [each for each in answers.values() if isinstance(each, NumberTaken)]
        assert [(each.session, each.request) for each in refused] == [
            (session, 2),
            (session, 3),
            (session, 4),
        ]
        assert not any(each.fate_unknown for each in refused)
        log = {record.value: record.offset for record in await s.records()}
        assert len(log) == 1 + 3 + 5
        for value, answer in answers.items():
            assert log.get(value) == (answer if isinstance(answer, int) else None)
        assert producer.session != session
        assert await producer.append(b"and on") > max(log.values())
        await producer.close()


def test_S04_work_that_is_done_again_in_another_order_is_told_so(tmp_path: Path):
    """As a task of Spark that runs again with other rows."""

    @story(tmp_path, client_limits=FAST)
    async def _(s: Story) -> None:
        session = await s.client.register(SHARD)
        bodies = [batch_of(b"%d" % n) for n in range(5)]
        async with s.client.numbered(SHARD, session) as producer:
            for body in bodies[:3]:
                await producer.append(body, 1)

        async def again() -> None:
            async with s.client.numbered(SHARD, session) as producer:
                for body in [bodies[0], bodies[2], bodies[1], *bodies[3:]]:
                    await producer.append(body, 1)

        with pytest.raises(NumberTaken) as told:
            await again()
        assert (told.value.request, told.value.fate_unknown) == (2, False)
        assert sorted(record.value for record in await s.records())[:3] == [b"0", b"1", b"2"]


def test_T7_eviction_is_told_where_the_fate_is_unknown(tmp_path: Path):
    limits = Limits(replies_max=32, sessions_max=2)

    @story(tmp_path, proxied=True, limits=limits, client_limits=FAST)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1)
        first = await producer.append(b"first")
        session = producer.session
        proxy = s.proxies[s.leader]
        proxy.to_client = False
        lost = [producer.send(b"lost") for _ in range(3)]
        await until(lambda: s.cluster.end(s.leader) == first + 4)
        for _ in range(2):
            await s.cluster.session(s.leader, SHARD)
        proxy.to_client = True
        for future in lost:
            with pytest.raises(SessionEvicted) as told:
                await future
            assert told.value.session == session
            assert told.value.fate_unknown
        await producer.flush()
        assert await producer.append(b"later") > first
        assert producer.session not in (0, session)
        assert [record.value for record in await s.records()] == [
            b"first", b"lost", b"lost", b"lost", b"later",
        ]  # fmt: skip


def test_T7_an_idle_session_that_was_evicted_costs_nothing(tmp_path: Path):
    """What was sent once, and refused, is certainly not in the log: a new session takes it."""

    @story(tmp_path, limits=Limits(replies_max=32, sessions_max=2),
           plane_limits=PlaneLimits(registered_max=100_000))  # fmt: skip
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1)
        await producer.append(b"first")
        session = producer.session
        for _ in range(2):
            await s.cluster.session(s.leader, SHARD)
        futures = [producer.send(b"%d" % n) for n in range(40)]
        offsets = [await future for future in futures]
        assert offsets == sorted(offsets)
        assert producer.session != session
        values = [record.value for record in await s.records()]
        assert values == [b"first", *[b"%d" % n for n in range(40)]]


def test_T7_an_eviction_that_took_a_while_to_be_committed_costs_nothing(tmp_path: Path):
    """Refused for the moment, again and again, it is still certainly not in the log."""

    @story(tmp_path, limits=Limits(replies_max=32, sessions_max=1))
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1)
        await producer.append(b"first")
        session = producer.session
        followers = [name for name in s.cluster.names if name != s.leader]
        for name in followers:
            await s.cluster.stop(name)
        end = s.cluster.end(s.leader)
        evicting = asyncio.create_task(s.cluster.session(s.leader, SHARD))
        await until(lambda: s.cluster.end(s.leader) == end + 1)
        futures = [producer.send(b"%d" % n) for n in range(3)]
        await until(lambda: isinstance(producer._delivery._last, Busy))
        assert producer.session == session
        for name in followers:
            await s.cluster.begin(name)
        await asyncio.gather(*futures)
        assert producer.session not in (0, session)
        await asyncio.gather(evicting, return_exceptions=True)
        values = [record.value for record in await s.records()]
        assert values == [b"first", b"0", b"1", b"2"]


def test_T7_what_is_refused_with_two_sessions_is_still_certainly_not_in_the_log(tmp_path: Path):
    """The session that was to take it is evicted as well, before the first request comes."""

    @story(tmp_path, limits=Limits(replies_max=32, sessions_max=1))
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1)
        await producer.append(b"first")
        await s.cluster.session(s.leader, SHARD)
        followers = [name for name in s.cluster.names if name != s.leader]
        for name in followers:
            await s.cluster.stop(name)
        end = s.cluster.end(s.leader)
        futures = [producer.send(b"%d" % n) for n in range(3)]
        await until(lambda: s.cluster.end(s.leader) == end + 1)
        evicting = asyncio.create_task(s.cluster.session(s.leader, SHARD))
        await until(lambda: s.cluster.end(s.leader) == end + 2)
        for name in followers:
            await s.cluster.begin(name)
        await asyncio.gather(*futures)
        await asyncio.gather(evicting, return_exceptions=True)
        values = [record.value for record in await s.records()]
        assert values == [b"first", b"0", b"1", b"2"]


def test_T7_sessions_that_evict_each_other_all_the_time(tmp_path: Path):
    """What was acknowledged is in the log once, at its offset; what was evicted at most once."""

    @story(tmp_path, limits=Limits(replies_max=32, sessions_max=2),
           plane_limits=PlaneLimits(registered_max=100_000))  # fmt: skip
    async def _(s: Story) -> None:
        producers = [s.client.producer(SHARD, batch_bytes=1) for _ in range(4)]
        told: dict[bytes, int | BaseException] = {}

        async def load(which: int) -> None:
            for turn in range(25):
                values = [b"%d %d %d" % (which, turn, n) for n in range(7)]
                futures = [producers[which].send(value) for value in values]
                answers = await asyncio.gather(*futures, return_exceptions=True)
                told.update(zip(values, answers, strict=True))

        await asyncio.gather(*map(load, range(4)))
        records = await s.records()
        offsets = {record.value: record.offset for record in records}
        assert len(offsets) == len(records)
        evicted = {value for value, answer in told.items() if isinstance(answer, SessionEvicted)}
        acknowledged = {value: answer for value, answer in told.items() if value not in evicted}
        assert {value: offsets.get(value) for value in acknowledged} == acknowledged
        assert len(acknowledged) > 100
        for producer in producers:
            if evicted:
                await asyncio.gather(producer.flush(), return_exceptions=True)


def test_a_deadline_ends_it_and_the_fate_is_told(tmp_path: Path):
    @story(tmp_path, proxied=True, client_limits=FAST)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1, deadline_ms=800)
        first = await producer.append(b"first")
        for proxy in s.proxies.values():
            proxy.to_client = False
        futures = [producer.send(b"%d" % n) for n in range(40)]
        await until(lambda: s.cluster.end(s.leader) >= first + 33)
        failures = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(failure, DeadlineExceeded) for failure in failures)
        unknown = [getattr(failure, "fate_unknown", None) for failure in failures]
        assert unknown == [True] * 32 + [False] * 8
        for proxy in s.proxies.values():
            proxy.to_client = True
        await producer.flush()
        await producer.append(b"later")
        values = [record.value for record in await s.records()]
        assert values == [b"first", *[b"%d" % n for n in range(32)], b"later"]


def test_what_was_given_up_is_not_sent_again_with_what_comes_later(tmp_path: Path):
    @story(tmp_path, proxied=True, client_limits=FAST)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1, deadline_ms=800)
        await producer.append(b"first")
        for proxy in s.proxies.values():
            proxy.silence()
        futures = [producer.send(b"%d" % n) for n in range(3)]
        failures = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(failure, DeadlineExceeded) for failure in failures)
        for proxy in s.proxies.values():
            proxy.to_node = proxy.to_client = True
        await producer.append(b"later")
        assert [record.value for record in await s.records()] == [b"first", b"later"]


def test_nothing_gets_the_number_of_a_numbered_request_that_is_too_long(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        producer = s.client.numbered(SHARD, await s.client.register(SHARD))
        told = [
            await producer.append(bytes(FRAME_BYTES_MAX), 1),
            await producer.append(batch_of(b"next"), 1),
        ]
        for future in told:
            with pytest.raises(RecordTooLarge):
                await future
        await producer.close()
        assert await s.records() == []


def test_an_overloaded_leader_is_tried_again(tmp_path: Path):
    limits = Limits(replies_max=32, sessions_max=256, appends_inflight_max=4)
    assert limits.replies_max == LIMITS.replies_max

    @story(tmp_path, limits=limits)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=1) as producer:
            futures = [producer.send(b"%d" % n) for n in range(200)]
            offsets = [await future for future in futures]
        assert offsets == sorted(offsets)
        assert [record.value for record in await s.records()] == [b"%d" % n for n in range(200)]
