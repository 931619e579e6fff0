"""The conformance suite, continued: watches of every metadata store."""

import asyncio
import gc
import tracemalloc
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from metadata.backends import (
    CHANGES_KEPT,
    Backend,
    MemoryBackend,
    SqliteBackend,
    delete,
    put,
    settle,
    take,
)
from shardlog.metadata.store import Change, News, Relisted
from shardlog.metadata.watching import PAGE_CHANGES_MAX


async def test_a_watch_tells_every_change_once_and_in_order(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        async with other.watch("", backend.at(1)) as watch:
            told: list[News] = []

            async def read() -> None:
                async for news in watch:
                    told.append(news)
                    if news == Change(news.revision, "end", b""):
                        return

            reading = asyncio.create_task(read())
            expected: list[News] = []
            random = Random(1)
            for number in range(CHANGES_KEPT - 20):
                key = f"k{random.randrange(5)}"
                if random.random() < 0.2 and await store.get(key):
                    await delete(store, key)
                    expected.append(Change(backend.at(number + 1), key, None))
                else:
                    await put(store, key, b"%d" % number)
                    expected.append(Change(backend.at(number + 1), key, b"%d" % number))
                if number % 50 == 49:
                    await settle()
            await put(store, "end", b"")
            await reading
        assert told[:-1] == expected


async def test_a_watch_that_is_pages_behind_misses_nothing(backend: Backend):
    """From 65 changes on they do not fit in one page, and a full page is not the last one."""
    count = 3 * PAGE_CHANGES_MAX
    assert count < CHANGES_KEPT
    async with backend.handle() as store:
        for number in range(count):
            await put(store, "s/a", b"%d" % number)
        async with store.watch("s/", backend.at(1)) as watch:
            assert await take(watch, count) == [
                Change(backend.at(number + 1), "s/a", b"%d" % number) for number in range(count)
            ]


async def test_changes_between_list_and_watch_are_told(backend: Backend):
    async with backend.handle() as store:
        await put(store, "a", b"1")
        listing = await store.list("")
        await put(store, "a", b"2")
        await put(store, "b", b"3")
        async with store.watch("", listing.next_revision) as watch:
            assert await take(watch, 2) == [
                Change(backend.at(2), "a", b"2"),
                Change(backend.at(3), "b", b"3"),
            ]
        async with store.watch("", listing.revision) as watch:
            assert await take(watch, 1) == [Change(backend.at(1), "a", b"1")]


async def test_a_watch_of_an_empty_store_begins_with_the_first_change(backend: Backend):
    async with backend.handle() as store, store.watch("", backend.at(0)) as watch:
        waiting = asyncio.create_task(take(watch, 1))
        await settle()
        await put(store, "a", b"1")
        assert await waiting == [Change(backend.at(1), "a", b"1")]


async def test_a_watch_tells_its_prefix_only(backend: Backend):
    async with backend.handle() as store, store.watch("s/", backend.at(1)) as watch:
        for key in ("s", "s/a", "s0", "r", "s/b/c", "t", "s/"):
            await put(store, key, b"")
        await delete(store, "s")
        await delete(store, "s/a")
        told = await take(watch, 4)
        assert [(news.key, news.value) for news in told if isinstance(news, Change)] == [
            ("s/a", b""),
            ("s/b/c", b""),
            ("s/", b""),
            ("s/a", None),
        ]


async def test_watchers_do_not_disturb_each_other(backend: Backend):
    count = 3 * PAGE_CHANGES_MAX
    assert count < CHANGES_KEPT
    async with backend.handle() as store, backend.handle() as other:
        for number in range(6):
            await put(store, "a", b"%d" % number)
        watches = [(store, other)[n % 2].watch("", backend.at(1 + n)) for n in range(6)]
        reading = [asyncio.create_task(take(watch, count - n)) for n, watch in enumerate(watches)]
        for number in range(6, count):
            await put(store, "a", b"%d" % number)
        for n, told in enumerate(await asyncio.gather(*reading)):
            assert [news.revision for news in told] == [
                backend.at(revision) for revision in range(1 + n, count + 1)
            ]
        for watch in watches:
            await watch.aclose()


async def test_a_watch_on_forgotten_changes_is_told_all_there_is(backend: Backend):
    async with backend.handle() as store:
        gone = await put(store, "s/gone", b"1")
        kept = await put(store, "s/kept", b"2")
        await store.compare_and_swap("s/gone", gone.version, None)
        await backend.forget_changes(store)
        revision = (await store.list("")).revision
        async with store.watch("s/", backend.at(1)) as watch:
            assert await take(watch, 1) == [Relisted(revision, (kept,))]
            later = await put(store, "s/later", b"3")
            assert await take(watch, 1) == [Change(later.version, "s/later", b"3")]


async def test_a_watch_that_lags_too_far_is_told_all_there_is(backend: Backend):
    async with backend.handle() as store, store.watch("s/", backend.at(1)) as watch:
        await put(store, "s/a", b"1")
        assert len(await take(watch, 1)) == 1
        record = await put(store, "s/a", b"2")
        await backend.forget_changes(store)
        told = (await take(watch, 1))[0]
        if backend.is_pushing:
            assert told == Change(record.version, "s/a", b"2")
        else:
            assert isinstance(told, Relisted)
            assert told.records == (record,)


async def test_a_watch_that_waits_is_not_relisted_for_changes_elsewhere(backend: Backend):
    async with backend.handle() as store, store.watch("s/", backend.at(1)) as watch:
        waiting = asyncio.create_task(take(watch, 1))
        for _ in range(4):
            for number in range(CHANGES_KEPT // 2):
                await put(store, "elsewhere", b"%d" % number)
            await settle()
        record = await put(store, "s/a", b"1")
        assert await waiting == [Change(record.version, "s/a", b"1")]


async def test_a_watch_from_beyond_the_end_is_told_all_there_is(backend: Backend):
    """So it is after an old backup was restored: the store has gone back."""
    async with backend.handle() as store:
        record = await put(store, "a", b"1")
        async with store.watch("", backend.at(7)) as watch:
            assert await take(watch, 1) == [Relisted(backend.at(1), (record,))]
            await put(store, "a", b"2")
            assert await take(watch, 1) == [Change(backend.at(2), "a", b"2")]


async def test_listing_and_watch_together_follow_a_busy_store(backend: Backend):
    """A copy kept by list and watch equals the store, however often it is relisted."""
    random = Random(2)
    async with backend.handle() as store, backend.handle() as other:
        listing = await other.list("s/")
        copy = {record.key: (record.version, record.value) for record in listing.records}
        async with other.watch("s/", listing.next_revision) as watch:

            async def follow() -> None:
                async for news in watch:
                    match news:
                        case Relisted(_, records):
                            copy.clear()
                            copy.update({each.key: (each.version, each.value) for each in records})
                        case Change(_, key, None):
                            del copy[key]
                        case Change(revision, key, value):
                            assert value is not None
                            copy[key] = (revision, value)
                    if "s/end" in copy:
                        return
                    if random.random() < 0.1:
                        await asyncio.sleep(0.002)

            following = asyncio.create_task(follow())
            for number in range(2 * CHANGES_KEPT):
                key = f"s/{random.randrange(8)}"
                if random.random() < 0.3 and await store.get(key):
                    await delete(store, key)
                else:
                    await put(store, key, b"%d" % number)
            await put(store, "s/end", b"")
            await following
        final = await store.list("s/")
        assert copy == {each.key: (each.version, each.value) for each in final.records}


async def test_a_watch_that_nobody_reads_holds_one_page_at_most(backend: Backend):
    value_bytes = 16 << 10
    async with backend.handle() as store, store.watch("", backend.at(1)) as watch:
        for number in range(PAGE_CHANGES_MAX):
            await put(store, "a", number.to_bytes(value_bytes, "big"))
        await take(watch, 1)
        for number in range(CHANGES_KEPT):
            await put(store, "a", number.to_bytes(value_bytes, "big"))
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2 * CHANGES_KEPT):
            await put(store, "a", number.to_bytes(value_bytes, "big"))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # What the store itself remembers is there once, and was allocated before only in part.
        assert after - before < 1.2 * CHANGES_KEPT * value_bytes
        told = await take(watch, PAGE_CHANGES_MAX)
        if backend.is_pushing:
            assert [news.revision for news in told] == [backend.at(2 + n) for n in range(64)]
        else:
            assert [isinstance(news, Relisted) for news in told] == [False] * 63 + [True]


async def test_a_cancelled_read_loses_nothing(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        async with other.watch("", backend.at(1)) as watch:
            told: list[News] = []
            random = Random(3)
            for number in range(60):
                reading = asyncio.create_task(take(watch, 1))
                writing = asyncio.create_task(put(store, "a", b"%d" % number))
                for _ in range(random.randrange(6)):
                    await asyncio.sleep(random.choice((0, 0.0005)))
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    told += await reading
                await writing
            told += await take(watch, 60 - len(told))
        assert [news.revision for news in told] == [backend.at(n) for n in range(1, 61)]


async def test_cancelled_watches_leave_nothing_behind(backend: Backend):
    async with backend.handle() as store:
        watches = [store.watch("", backend.at(1)) for _ in range(20)]
        waiting = [asyncio.create_task(take(watch, 1)) for watch in watches]
        await settle()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await settle()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await put(store, "a", b"1")
        for watch in watches:
            assert await take(watch, 1) == [Change(backend.at(1), "a", b"1")]


async def test_a_closed_watch_has_ended(backend: Backend):
    async with backend.handle() as store:
        await put(store, "a", b"1")
        await put(store, "a", b"2")
        async with store.watch("", backend.at(1)) as watch:
            await take(watch, 1)
        assert [news async for news in watch] == []


async def test_a_watch_has_one_reader(backend: Backend):
    async with backend.handle() as store, store.watch("", backend.at(1)) as watch:
        waiting = asyncio.create_task(take(watch, 1))
        await settle()
        with pytest.raises(RuntimeError, match="one reader"):
            await anext(watch)
        await put(store, "a", b"1")
        assert len(await waiting) == 1


@pytest.mark.parametrize("kind", [MemoryBackend, SqliteBackend])
async def test_the_first_change_that_is_kept_is_told_as_such(kind: type[Backend], tmp_path: Path):
    """And from the one before it on, all that there is."""
    backend = kind(tmp_path)
    async with backend.handle() as store:
        for number in range(CHANGES_KEPT + 1):
            last = await put(store, "a", b"%d" % number)
        async with store.watch("", backend.at(2)) as watch:
            assert await take(watch, 1) == [Change(backend.at(2), "a", b"1")]
        async with store.watch("", backend.at(1)) as watch:
            assert await take(watch, 1) == [Relisted(last.version, (last,))]


async def test_who_stops_waiting_leaves_the_others_their_news(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        one, two = store.watch("", backend.at(1)), store.watch("", backend.at(1))
        staying, leaving = asyncio.create_task(take(one, 1)), asyncio.create_task(take(two, 1))
        await settle()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        record = await put(other, "a", b"1")
        assert await staying == [Change(record.version, "a", b"1")]
        await one.aclose()
        await two.aclose()
