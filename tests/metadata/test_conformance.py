"""One suite for every metadata store: what `shardlog.metadata.store` promises.

The part about watches is in `test_conformance_watch.py`.
"""

import asyncio
from itertools import pairwise

import pytest

from metadata.backends import Backend, delete, put, settle, take, written
from shardlog.metadata.failures import BadKey, Closed, MetadataFailure, TooLarge
from shardlog.metadata.store import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    MetadataStore,
    Swapped,
    Versioned,
)

# --- get, list, compare-and-swap ---------------------------------------------------------------


async def test_nothing_is_there_at_first(backend: Backend):
    async with backend.handle() as store:
        assert await store.get("a") is None
        listing = await store.list("")
        assert (listing.revision, listing.records) == (backend.at(0), ())


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
            Versioned("empty", backend.at(2), b""),
            Versioned(key, backend.at(1), value),
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
        assert (await store.list("")).revision == backend.at(2)


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


# --- the end -----------------------------------------------------------------------------------


async def test_a_closed_handle_says_so(backend: Backend):
    async with backend.handle() as store, backend.handle() as other:
        await put(store, "a", b"1")
        fresh = store.watch("", backend.at(1))
        waiting = asyncio.create_task(take(store.watch("", backend.at(2)), 1))
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
        assert await other.get("a") == Versioned("a", backend.at(1), b"1")
        assert issubclass(Closed, MetadataFailure)


async def test_a_close_does_not_undo_what_is_under_way(backend: Backend):
    async with backend.handle() as store:
        writing = asyncio.create_task(store.compare_and_swap("a", 0, b"1"))
        await asyncio.sleep(0)
        await store.close()
        assert (await writing).done
    async with backend.handle() as store:
        assert await store.get("a") == Versioned("a", backend.at(1), b"1")
