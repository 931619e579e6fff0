"""One suite for every metadata store: what `shardlog.metadata.store` promises."""

import asyncio
import gc
import tracemalloc
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from metadata.backends import CHANGES_KEPT, Backend, delete, put, written
from shardlog.metadata.failures import BadKey, Closed, MetadataFailure, TooLarge
from shardlog.metadata.store import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Change,
    MetadataStore,
    News,
    Relisted,
    Swapped,
    Versioned,
    Watch,
)
from shardlog.metadata.watching import PAGE_CHANGES_MAX


async def take(watch: Watch, count: int) -> list[News]:
    return [await anext(watch) for _ in range(count)]


async def settle() -> None:
    """Let everybody who can go on do so, threads too."""
    for _ in range(20):
        await asyncio.sleep(0.001)


# --- get, list, compare-and-swap ---------------------------------------------------------------


async def test_nothing_is_there_at_first(backend: Backend):
    async with backend.handle() as store:
        assert await store.get("a") is None
        listing = await store.list("")
        assert (listing.revision, listing.records) == (0, ())


async def test_what_was_written_is_read_by_every_handle(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        record = written(await store.compare_and_swap("a", 0, b"\x00one"))
        assert record == Versioned("a", record.version, b"\x00one")
        assert record.version > 0
        assert await store.get("a") == await other.get("a") == record


async def test_what_was_written_outlives_the_handle(backend: Backend):
    async with backend.handle() as store:
        record = await put(store, "a", b"one")
    async with backend.handle() as store:
        assert await store.get("a") == record
        assert (await put(store, "a", b"two")).version > record.version


async def test_a_swap_needs_the_current_version(backend: Backend):
    async with backend.handle() as store:
        first = written(await store.compare_and_swap("a", 0, b"1"))
        second = written(await store.compare_and_swap("a", first.version, b"2"))
        assert second.version > first.version
        for wrong in (0, first.version, second.version + 1):
            assert await store.compare_and_swap("a", wrong, b"3") == Swapped(False, second)
            assert await store.compare_and_swap("b", wrong or 1, b"3") == Swapped(False, None)
        assert await store.get("a") == second
        assert await store.get("b") is None


async def test_a_key_is_created_once(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        record = written(await store.compare_and_swap("a", 0, b"mine"))
        assert await other.compare_and_swap("a", 0, b"mine") == Swapped(False, record)


async def test_a_lost_swap_changes_nothing(backend: Backend):
    async with backend.handle() as store:
        await put(store, "a", b"1")
        before = await store.list("")
        await store.compare_and_swap("a", 0, b"2")
        assert await store.list("") == before


async def test_a_deletion_needs_the_current_version(backend: Backend):
    async with backend.handle() as store:
        record = await put(store, "a", b"1")
        assert await store.compare_and_swap("a", record.version + 1, None) == Swapped(False, record)
        assert await store.compare_and_swap("a", record.version, None) == Swapped(True, None)
        assert await store.compare_and_swap("a", record.version, None) == Swapped(False, None)
        assert await store.get("a") is None
        assert (await store.list("")).records == ()


async def test_versions_grow_over_deletions(backend: Backend):
    versions = []
    for _ in range(3):
        async with backend.handle() as store:
            for value in (b"1", b"2"):
                versions.append((await put(store, "a", value)).version)
            await delete(store, "a")
    assert all(earlier < later for earlier, later in pairwise(versions))


async def test_a_version_is_the_revision_of_the_last_write(backend: Backend):
    async with backend.handle() as store:
        first = await put(store, "a", b"1")
        assert (await store.list("")).revision == first.version
        second = await put(store, "b", b"1")
        listing = await store.list("")
        assert listing.revision == second.version
        assert listing.records == (first, second)


async def test_a_listing_has_its_prefix_in_order(backend: Backend):
    keys = ["s/b", "s", "s/", "t/a", "s/a/x", "s/~", "s0", "S/a", "s/a", "s.", "r~"]
    async with backend.handle() as store:
        for key in keys:
            await put(store, key, key.encode())
        for prefix in ("", "s", "s/", "s/a", "s/a/", "none", "~"):
            found = [record.key for record in (await store.list(prefix)).records]
            assert found == sorted(key for key in keys if key.startswith(prefix))


async def test_limits(backend: Backend):
    async with backend.handle() as store:
        key, value = "k" * KEY_BYTES_MAX, b"\xff" * VALUE_BYTES_MAX
        await put(store, key, value)
        await put(store, "empty", b"")
        assert (await store.list("")).records == (
            Versioned("empty", 2, b""),
            Versioned(key, 1, value),
        )
        with pytest.raises(TooLarge):
            await store.compare_and_swap("a", 0, value + b"\xff")
        for bad in ("", key + "k", "a b", "a\x00", "é", "a\x7f", "a\n"):
            with pytest.raises(BadKey):
                await store.compare_and_swap(bad, 0, b"")
            with pytest.raises(BadKey):
                await store.get(bad)
        with pytest.raises(BadKey):
            await store.list("a\x7f")
        with pytest.raises(BadKey):
            store.watch("\n", 1)
        with pytest.raises(ValueError, match="negative"):
            await store.compare_and_swap("a", -1, b"")
        with pytest.raises(ValueError, match="negative"):
            store.watch("", -1)
        with pytest.raises(ValueError, match="does not exist"):
            await store.compare_and_swap("a", 0, None)
        assert (await store.list("")).revision == 2


async def test_of_many_writers_one_wins_each_version(backend: Backend):
    writers, rounds = 50, 4
    async with backend.handle() as one, backend.handle() as two:
        won: list[int] = []

        async def increment(store: MetadataStore) -> None:
            for _ in range(rounds):
                while True:
                    current = await store.get("n")
                    await asyncio.sleep(0)
                    number = int(current.value) + 1 if current else 1
                    version = current.version if current else 0
                    swapped = await store.compare_and_swap("n", version, b"%d" % number)
                    if swapped.done:
                        won.append(version)
                        break

        await asyncio.gather(*(increment((one, two)[n % 2]) for n in range(writers)))
        final = await one.get("n")
        assert final
        assert int(final.value) == writers * rounds
        assert len(set(won)) == len(won) == writers * rounds


# --- watch -------------------------------------------------------------------------------------


async def test_a_watch_tells_every_change_once_and_in_order(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        async with other.watch("", 1) as watch:
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
                    expected.append(Change(number + 1, key, None))
                else:
                    await put(store, key, b"%d" % number)
                    expected.append(Change(number + 1, key, b"%d" % number))
                if number % 50 == 49:
                    await settle()
            await put(store, "end", b"")
            await reading
        assert told[:-1] == expected


async def test_changes_between_list_and_watch_are_told(backend: Backend):
    async with backend.handle() as store:
        await put(store, "a", b"1")
        listing = await store.list("")
        await put(store, "a", b"2")
        await put(store, "b", b"3")
        async with store.watch("", listing.next_revision) as watch:
            assert await take(watch, 2) == [Change(2, "a", b"2"), Change(3, "b", b"3")]
        async with store.watch("", listing.revision) as watch:
            assert await take(watch, 1) == [Change(1, "a", b"1")]


async def test_a_watch_of_an_empty_store_begins_with_the_first_change(backend: Backend):
    async with backend.handle() as store, store.watch("", 0) as watch:
        waiting = asyncio.create_task(take(watch, 1))
        await settle()
        await put(store, "a", b"1")
        assert await waiting == [Change(1, "a", b"1")]


async def test_a_watch_tells_its_prefix_only(backend: Backend):
    async with backend.handle() as store, store.watch("s/", 1) as watch:
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
        watches = [(store, other)[n % 2].watch("", 1 + n) for n in range(6)]
        reading = [asyncio.create_task(take(watch, count - n)) for n, watch in enumerate(watches)]
        for number in range(6, count):
            await put(store, "a", b"%d" % number)
        for n, told in enumerate(await asyncio.gather(*reading)):
            assert [news.revision for news in told] == list(range(1 + n, count + 1))
        for watch in watches:
            await watch.aclose()


async def test_a_watch_on_forgotten_changes_is_told_all_there_is(backend: Backend):
    async with backend.handle() as store:
        gone = await put(store, "s/gone", b"1")
        kept = await put(store, "s/kept", b"2")
        await store.compare_and_swap("s/gone", gone.version, None)
        await backend.forget_changes(store)
        revision = (await store.list("")).revision
        async with store.watch("s/", 1) as watch:
            assert await take(watch, 1) == [Relisted(revision, (kept,))]
            later = await put(store, "s/later", b"3")
            assert await take(watch, 1) == [Change(later.version, "s/later", b"3")]


async def test_a_watch_that_lags_too_far_is_told_all_there_is(backend: Backend):
    async with backend.handle() as store, store.watch("s/", 1) as watch:
        await put(store, "s/a", b"1")
        assert len(await take(watch, 1)) == 1
        record = await put(store, "s/a", b"2")
        await backend.forget_changes(store)
        told = (await take(watch, 1))[0]
        assert isinstance(told, Relisted)
        assert told.records == (record,)


async def test_a_watch_that_waits_is_not_relisted_for_changes_elsewhere(backend: Backend):
    async with backend.handle() as store, store.watch("s/", 1) as watch:
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
        async with store.watch("", 7) as watch:
            assert await take(watch, 1) == [Relisted(1, (record,))]
            await put(store, "a", b"2")
            assert await take(watch, 1) == [Change(2, "a", b"2")]


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
    async with backend.handle() as store, store.watch("", 1) as watch:
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
        assert [isinstance(news, Relisted) for news in told] == [False] * 63 + [True]


async def test_a_cancelled_read_loses_nothing(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        async with other.watch("", 1) as watch:
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
        assert [news.revision for news in told] == list(range(1, 61))


async def test_cancelled_watches_leave_nothing_behind(backend: Backend):
    async with backend.handle() as store:
        watches = [store.watch("", 1) for _ in range(20)]
        waiting = [asyncio.create_task(take(watch, 1)) for watch in watches]
        await settle()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await settle()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await put(store, "a", b"1")
        for watch in watches:
            assert await take(watch, 1) == [Change(1, "a", b"1")]


async def test_a_closed_watch_has_ended(backend: Backend):
    async with backend.handle() as store:
        await put(store, "a", b"1")
        await put(store, "a", b"2")
        async with store.watch("", 1) as watch:
            await take(watch, 1)
        assert [news async for news in watch] == []


async def test_a_watch_has_one_reader(backend: Backend):
    async with backend.handle() as store, store.watch("", 1) as watch:
        waiting = asyncio.create_task(take(watch, 1))
        await settle()
        with pytest.raises(RuntimeError, match="one reader"):
            await anext(watch)
        await put(store, "a", b"1")
        assert len(await waiting) == 1


# --- the end -----------------------------------------------------------------------------------


async def test_a_closed_handle_says_so(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        await put(store, "a", b"1")
        fresh = store.watch("", 1)
        waiting = asyncio.create_task(take(store.watch("", 2), 1))
        await settle()
        await store.close()
        await store.close()
        with pytest.raises(Closed):
            await waiting
        for call in (store.get("a"), store.list(""), store.compare_and_swap("b", 0, b"")):
            with pytest.raises(Closed):
                await call
        with pytest.raises(Closed):
            await anext(fresh)
        assert await other.get("a") == Versioned("a", 1, b"1")
        assert issubclass(Closed, MetadataFailure)


async def test_a_close_does_not_undo_what_is_under_way(backend: Backend):
    async with backend.handle() as store:
        writing = asyncio.create_task(store.compare_and_swap("a", 0, b"1"))
        await asyncio.sleep(0)
        await store.close()
        assert (await writing).done
    async with backend.handle() as store:
        assert await store.get("a") == Versioned("a", 1, b"1")
