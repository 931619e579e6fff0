"""What etcd forgets, loses, takes back or has no room for."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from etcd import binaries
from etcd.cluster import EtcdCluster
from etcd.relay import relay_to

from metadata.backends import delete, put, settle, take
from shardlog.metadata.etcd.calls import TXN
from shardlog.metadata.etcd.settings import EtcdSettings
from shardlog.metadata.etcd.store import LIST_PAGE_RECORDS, EtcdStore
from shardlog.metadata.failures import OutOfSpace, TooLarge, Unavailable, Unwritten
from shardlog.metadata.generated import etcd_pb2 as pb
from shardlog.metadata.store import VALUE_BYTES_MAX, Change, News, Relisted, Versioned

pytestmark = pytest.mark.needs("etcd")


@asynccontextmanager
async def opened(settings: EtcdSettings) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(settings)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def settings(etcd: EtcdCluster) -> EtcdSettings:
    """A prefix of its own."""
    return etcd.settings(f"/test/{secrets.token_hex(8)}/")


# --- what is forgotten -------------------------------------------------------------------------


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_watch_that_was_away_goes_on_or_is_told_all(
    etcd: EtcdCluster, settings: EtcdSettings, compacted: bool
):
    async with (
        opened(settings) as other,
        relay_to(settings.endpoints[0]) as relay,
        opened(replace(settings, endpoints=(relay.endpoint,))) as store,
    ):
        first = await put(store, "s/a", b"1")
        async with store.watch("s/", first.version) as watch:
            assert await take(watch, 1) == [Change(first.version, "s/a", b"1")]
            waiting = asyncio.create_task(take(watch, 1))
            await settle()
            relay.cut()
            await delete(other, "s/a")
            kept = await put(other, "s/b", b"2")
            if compacted:
                await asyncio.to_thread(etcd.compact)
            relay.mend()
            if compacted:
                assert await waiting == [Relisted(kept.version, (kept,))]
            else:
                assert await waiting == [Change(kept.version - 1, "s/a", None)]
                assert await take(watch, 1) == [Change(kept.version, "s/b", b"2")]
            later = await put(store, "s/c", b"3")
            assert await take(watch, 1) == [Change(later.version, "s/c", b"3")]


async def test_a_watch_that_waits_learns_how_far_etcd_is(tmp_path: Path):
    """So that it is not told all again because it was quiet in its prefix for long."""
    prefix = "experimental-" if binaries.version(binaries.etcd()) < (3, 6) else ""
    flags = [f"--{prefix}watch-progress-notify-interval=200ms"]
    with EtcdCluster(tmp_path / "etcd", flags=flags) as cluster:
        async with (
            opened(cluster.settings()) as other,
            relay_to(cluster.endpoints[0]) as relay,
            opened(replace(cluster.settings(), endpoints=(relay.endpoint,))) as store,
            store.watch("s/", 1) as watch,
        ):
            waiting = asyncio.create_task(take(watch, 1))
            last = await put(other, "elsewhere", b"")
            while watch._next <= last.version:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            relay.cut()
            await asyncio.to_thread(cluster.compact)
            relay.mend()
            record = await put(other, "s/a", b"1")
            assert await waiting == [Change(record.version, "s/a", b"1")]


async def test_a_listing_of_many_pages_is_of_one_revision(settings: EtcdSettings):
    count = 2 * LIST_PAGE_RECORDS + 1
    async with opened(settings) as store:
        records = tuple([await put(store, f"s/{n:04}", b"%d" % n) for n in range(count)])
        listing = await store.list("s/")
        assert listing.records == records
        assert listing.revision == records[-1].version

        async def write() -> None:
            for number in range(100):
                await put(store, f"s/{count - 1:04}", b"%d" % number)

        writing = asyncio.create_task(write())
        while not writing.done():
            listing = await store.list("s/")
            assert len(listing.records) == count
            assert max(record.version for record in listing.records) == listing.revision
        await writing


async def test_a_listing_outlives_a_compaction_between_its_pages(
    etcd: EtcdCluster, settings: EtcdSettings
):
    async with opened(settings) as store:
        for number in range(2 * LIST_PAGE_RECORDS):
            await put(store, f"s/{number:04}", b"")
        stop = asyncio.Event()

        async def compact() -> None:
            while not stop.is_set():
                await put(store, "t", b"")
                await asyncio.to_thread(etcd.compact)

        compacting = asyncio.create_task(compact())
        for _ in range(20):
            assert len((await store.list("s/")).records) == 2 * LIST_PAGE_RECORDS
        stop.set()
        await compacting


# --- what comes in pieces ----------------------------------------------------------------------


@pytest.mark.parametrize("broken", [False, True])
async def test_changes_that_etcd_sends_in_pieces_are_told_whole(
    settings: EtcdSettings, broken: bool
):
    """Pieces of 1.5 MiB end inside revisions of five changes; the stream breaks after each."""
    async with opened(settings) as store:
        first = await put(store, "s/first", b"")
        expected: list[News] = []
        for number in range(30):
            keys = [f"s/{number}/{part}" for part in range(5)]
            value = number.to_bytes(VALUE_BYTES_MAX, "big")
            puts = [pb.PutRequest(key=store.inside(key), value=value) for key in keys]
            request = pb.TxnRequest(success=[pb.RequestOp(request_put=each) for each in puts])
            answer = await store.links.write(TXN, request)
            expected += [Change(answer.header.revision, key, value) for key in keys]
        last = await put(store, "s/last", b"")
        expected.append(Change(last.version, "s/last", b""))
        told: list[News] = []
        async with store.watch("s/", first.version + 1) as watch:
            while not told or told[-1] != expected[-1]:
                told += await take(watch, 1)
                if broken:
                    for stream in store.links._streams:
                        stream.give_up()
        assert told == expected


async def test_what_nobody_reads_stays_in_etcd(settings: EtcdSettings):
    """All that the network carries of 16 MiB is one answer and what gRPC takes in of the next."""
    async with (
        opened(settings) as other,
        relay_to(settings.endpoints[0]) as relay,
        opened(replace(settings, endpoints=(relay.endpoint,))) as store,
    ):
        first = await put(other, "s/a", b"")
        async with store.watch("s/", first.version) as watch:
            await take(watch, 1)
            before = relay.answered_bytes
            revisions = []
            for number in range(256):
                record = await put(other, "s/a", number.to_bytes(VALUE_BYTES_MAX, "big"))
                revisions.append(record.version)
            assert (await take(watch, 1))[0].revision == revisions[0]
            # The network is quiet when a call that comes after all of it is answered.
            await store.get("s/b")
            assert relay.answered_bytes - before < 4 << 20
            assert [news.revision for news in await take(watch, 255)] == revisions[1:]


async def test_a_watch_that_is_closed_while_it_is_read_has_ended(settings: EtcdSettings):
    async with opened(settings) as store:
        watch = store.watch("", 1)

        async def read() -> list[News]:
            return [news async for news in watch if isinstance(news, Change)]

        reading = asyncio.create_task(read())
        await settle()
        await watch.aclose()
        assert await reading == []


async def test_keys_that_are_not_ours_are_left_out(settings: EtcdSettings):
    async with opened(settings) as store:
        foreign = [
            store.inside("s/") + tail for tail in (b"a b", b"\xff", "é".encode(), b"k" * 600)
        ]
        first = await put(store, "s/a", b"1")
        for key in foreign:
            request = pb.TxnRequest(
                success=[pb.RequestOp(request_put=pb.PutRequest(key=key, value=b""))]
            )
            await store.links.write(TXN, request)
        assert (await store.list("s/")).records == (first,)
        last = await put(store, "s/b", b"2")
        async with store.watch("s/", first.version) as watch:
            told = await take(watch, 2)
        assert told == [Change(first.version, "s/a", b"1"), Change(last.version, "s/b", b"2")]


async def test_prefixes_keep_stores_apart(etcd: EtcdCluster, settings: EtcdSettings):
    longer = replace(settings, prefix=settings.prefix[:-1] + "x/")
    below = replace(settings, prefix=settings.prefix + "below/")
    async with opened(settings) as store, opened(longer) as other, opened(below) as inner:
        record = await put(store, "a", b"1")
        assert await other.get("a") is None
        await put(other, "a", b"2")
        await put(inner, "a", b"3")
        assert [each.key for each in (await store.list("")).records] == ["a", "below/a"]
        assert await store.get("a") == record
        assert len((await other.list("")).records) == 1


# --- what is uncertain -------------------------------------------------------------------------


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_write_whose_answer_is_lost_may_stand(settings: EtcdSettings, breaks: bool):
    """It is sent once: tried again, it would find itself and take that for somebody else."""
    async with (
        opened(settings) as other,
        relay_to(settings.endpoints[0]) as relay,
        opened(replace(settings, endpoints=(relay.endpoint,), request_timeout_ms=2000)) as store,
    ):
        first = await put(store, "a", b"1")
        relay.lose_answers()
        writing = asyncio.create_task(store.compare_and_swap("a", first.version, b"2"))
        expected = Versioned("a", first.version + 1, b"2")
        while await other.get("a") != expected:
            await asyncio.sleep(0.01)
        if breaks:
            relay.cut()
            relay.mend()
        with pytest.raises(Unavailable) as caught:
            await writing
        assert not isinstance(caught.value, Unwritten)
        relay.mend()
        assert await store.get("a") == expected


async def test_a_write_that_never_left_is_certain(settings: EtcdSettings):
    async with (
        opened(settings) as other,
        relay_to(settings.endpoints[0]) as relay,
        opened(replace(settings, endpoints=(relay.endpoint,), request_timeout_ms=500)) as store,
    ):
        relay.cut()
        while store.links._link and store.links._link.is_connected:
            await asyncio.sleep(0.01)
        with pytest.raises(Unwritten):
            await store.compare_and_swap("a", 0, b"1")
        relay.mend()
        assert await other.get("a") is None
        assert (await store.compare_and_swap("a", 0, b"2")).done


# --- what does not fit -------------------------------------------------------------------------


async def test_an_etcd_that_takes_less_than_a_value(tmp_path: Path):
    with EtcdCluster(tmp_path / "etcd", flags=["--max-request-bytes=4096"]) as cluster:
        async with opened(cluster.settings()) as store:
            with pytest.raises(TooLarge, match="the store takes less"):
                await store.compare_and_swap("a", 0, b"x" * 8192)
            assert (await store.compare_and_swap("a", 0, b"x" * 1024)).done


async def fill(store: EtcdStore) -> None:
    for number in range(200):
        await put(store, "a", number.to_bytes(VALUE_BYTES_MAX, "big"))


async def test_an_etcd_without_space_says_so_and_goes_on_when_it_has_some(tmp_path: Path):
    """Whether the write that hit the limit stands is not known: etcd may have applied it."""
    flags = [f"--quota-backend-bytes={4 << 20}"]
    with EtcdCluster(tmp_path / "etcd", flags=flags) as cluster:
        async with opened(cluster.settings()) as store:
            first = await put(store, "first", b"1")
            with pytest.raises(OutOfSpace, match="space exceeded"):
                await fill(store)
            # Reads, watches and deletions go on.
            assert await store.get("first") == first
            async with store.watch("first", first.version) as watch:
                assert await take(watch, 1) == [Change(first.version, "first", b"1")]
            assert "NOSPACE" in str(await store.health())
            assert "space exceeded" in await store.why_full()
            await delete(store, "first")
            await asyncio.to_thread(cluster.compact)
            await asyncio.to_thread(cluster.ctl, "defrag")
            await asyncio.to_thread(cluster.ctl, "alarm", "disarm")
            assert await store.why_full() == ""
            assert (await put(store, "a", b"2")).value == b"2"
            assert str(await store.health()) == "1 of 1 members answer"


# --- what is taken back ------------------------------------------------------------------------


async def test_a_watch_on_a_restored_backup_is_told_all(tmp_path: Path):
    with EtcdCluster(tmp_path / "etcd") as cluster:
        async with opened(cluster.settings()) as store:
            old = await put(store, "a", b"old")
            await asyncio.to_thread(cluster.back_up, tmp_path / "backup")
            await put(store, "a", b"new")
            await put(store, "b", b"new")
            latest = await put(store, "c", b"new")
            async with store.watch("", latest.version + 1) as watch:
                waiting = asyncio.create_task(take(watch, 1))
                await settle()
                await asyncio.to_thread(cluster.restore, tmp_path / "backup")
                assert await waiting == [Relisted(old.version, (old,))]
                record = await put(store, "a", b"again")
                assert record.version == old.version + 1
                assert await take(watch, 1) == [Change(record.version, "a", b"again")]


async def test_a_restored_backup_that_was_written_beyond_the_watch_is_noticed(tmp_path: Path):
    """By etcd's term, which begins again with a restore."""
    with EtcdCluster(tmp_path / "etcd") as cluster:
        async with (
            relay_to(cluster.endpoints[0]) as relay,
            opened(replace(cluster.settings(), endpoints=(relay.endpoint,))) as store,
        ):
            await put(store, "a", b"old")
            await asyncio.to_thread(cluster.back_up, tmp_path / "backup")
            latest = await put(store, "b", b"new")
            async with store.watch("", latest.version + 1) as watch:
                waiting = asyncio.create_task(take(watch, 1))
                await settle()
                relay.cut()
                await asyncio.to_thread(cluster.restore, tmp_path / "backup")
                async with opened(cluster.settings()) as other:
                    for number in range(10):
                        record = await put(other, "a", b"%d" % number)
                assert record.version > latest.version
                relay.mend()
                assert await waiting == [Relisted(record.version, (record,))]


async def test_a_backup_restored_as_etcd_advises_is_noticed_by_its_revision(tmp_path: Path):
    """With `--bump-revision` and `--mark-compacted` no version comes twice."""
    with EtcdCluster(tmp_path / "etcd") as cluster:
        async with opened(cluster.settings()) as store:
            old = await put(store, "a", b"old")
            await asyncio.to_thread(cluster.back_up, tmp_path / "backup")
            latest = await put(store, "a", b"new")
            async with store.watch("", latest.version + 1) as watch:
                waiting = asyncio.create_task(take(watch, 1))
                await settle()
                await asyncio.to_thread(
                    cluster.restore, tmp_path / "backup", "--bump-revision=1000000",
                    "--mark-compacted",
                )  # fmt: skip
                (told,) = await waiting
                assert isinstance(told, Relisted)
                assert told.records == (old,)
                assert told.revision > latest.version
            assert not (await store.compare_and_swap("a", latest.version, b"3")).done
            assert (await store.compare_and_swap("a", old.version, b"3")).done
