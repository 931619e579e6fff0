"""Many shards on one volume: what is reported is there, groups gather, syncs are shared."""

import asyncio
from pathlib import Path

import pytest

from shardlog.protocol.failures import ImpossibleState
from shardlog.storage.failures import DiskFailed
from shardlog.storage.real_files import RealFiles
from shardlog.storage.relaxing import Relax
from shardlog.storage.volume import VolumeLimits
from storage.volumes import Client, WatchedFiles, made, reopened, running


def ordered(client: Client) -> bool:
    """Every token is reported, once, in its order."""
    return client.reported == list(range(1, client.token + 1))


# --- what is reported ----------------------------------------------------------------------------


def test_tokens_come_in_order_and_reopening_finds_everything(tmp_path: Path) -> None:
    async def first() -> Client:
        async with running(made(RealFiles(), tmp_path / "volume")) as volume:
            client = Client(volume, "orders")
            assert client.recovered is None
            await client.format()
            for size in (0, 1, 100, 5000):
                client.append(30, size)
                client.sync()
            await client.durable()
            assert ordered(client)
            return client

    async def second(before: Client) -> None:
        async with running(made(RealFiles(), tmp_path / "volume")) as volume:
            assert volume.shards() == ["orders"]
            client = Client(volume, "orders")
            assert client.found() == before.entries
            assert len(client.store.files.segments.items) > 2
            client.append(5)
            await client.durable()
            before.entries += client.entries

    client = asyncio.run(first())
    asyncio.run(second(client))
    assert reopened(tmp_path / "volume", ["orders"]) == [client.entries]


def test_an_idle_shard_answers_a_token_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(made(WatchedFiles(), tmp_path)) as volume:
            client = Client(volume, "orders")
            await client.format()
            client.sync()
            client.sync()
            await client.durable()
            assert ordered(client)

    asyncio.run(body())


@pytest.mark.parametrize("together", [1, 1 << 30])
def test_many_shards_append_at_once(tmp_path: Path, together: int) -> None:
    limits = VolumeLimits(sync_together_from=together, open_files_max=64)
    names = [f"shard-{number}" for number in range(200)]
    files = WatchedFiles()

    async def body() -> list[Client]:
        async with running(made(files, tmp_path, limits)) as volume:
            clients = [Client(volume, name) for name in names]
            await asyncio.gather(*(client.format() for client in clients))
            for _ in range(3):
                for number, client in enumerate(clients):
                    client.append(1 + number % 3)
                await clients[0].durable()
            await asyncio.gather(*(client.durable() for client in clients))
            assert sorted(volume.shards()) == sorted(names)
            assert files.watch.open_files <= limits.open_files_max + 2 * limits.workers
        return clients

    clients = asyncio.run(body())
    assert files.watch.open_files == 0
    for client, found in zip(clients, reopened(tmp_path, names), strict=True):
        assert ordered(client)
        assert found == client.entries


def test_names_of_shards_do_not_lead_elsewhere(tmp_path: Path) -> None:
    names = ["a/b", "..", ".", "../../x", ".hidden", "a b", "ä%2F", "%2E", "a\nb", "A", "a"]
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    (tmp_path / "keep").write_text("mine")
    (tmp_path / "volume" / "stray").write_text("O3: a file is no shard")

    async def body() -> list[Client]:
        async with running(made(WatchedFiles(), tmp_path / "volume")) as volume:
            clients = [Client(volume, name) for name in names]
            for client in clients:
                await client.format()
                client.append(2)
                await client.durable()
            assert sorted(volume.shards()) == sorted(names)
            with pytest.raises(ImpossibleState, match="without a name"):
                Client(volume, "")
            with pytest.raises(DiskFailed, match="name too long"):
                Client(volume, "ä" * 200)
        return clients

    clients = asyncio.run(body())
    for client, found in zip(clients, reopened(tmp_path / "volume", names), strict=True):
        assert found == client.entries
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keep", "volume"]
    assert len(list((tmp_path / "volume").iterdir())) == len(names) + 2


def test_the_name_of_a_new_volume_is_durable(tmp_path: Path) -> None:
    files = WatchedFiles()
    made(files, tmp_path / "volume").close()
    assert files.watch.events[0] == ("sync directory", str(tmp_path))


# --- groups --------------------------------------------------------------------------------------


def test_what_comes_in_during_a_sync_is_one_round_of_each_shard(tmp_path: Path) -> None:
    files = WatchedFiles()
    watch = files.watch

    async def body() -> None:
        async with running(made(files, tmp_path)) as volume:
            clients = [Client(volume, name) for name in ("a", "b")]
            for client in clients:
                await client.format()
                client.append()
                await client.durable()
            watch.close_gate()
            clients[0].append()
            await asyncio.to_thread(watch.reached.wait)
            before = len(watch.buffers)
            for client in clients:
                client.append(20)
            await asyncio.sleep(0)
            assert len(watch.buffers) == before
            watch.gate.set()
            await asyncio.gather(*(client.durable() for client in clients))
            for name in ("a", "b"):
                sizes = [count for path, count in watch.buffers[before:] if f"/{name}/" in path]
                assert sizes.count(2 * 20) == 1, "header and body of all twenty entries"
                assert max(size for size in sizes if size != 2 * 20) == 1, "the rest is slots"

    asyncio.run(body())


def test_syncs_of_a_batch_run_side_by_side(tmp_path: Path) -> None:
    """All of them are under way before any has ended."""
    files = WatchedFiles()
    watch = files.watch
    names = [f"shard-{number}" for number in range(4)]

    async def body() -> None:
        async with running(made(files, tmp_path, VolumeLimits(workers=4))) as volume:
            clients = [Client(volume, name) for name in names]
            for client in clients:
                await client.format()
                client.append()
                await client.durable()
            before = watch.syncs()
            watch.close_gate()
            for client in clients:
                client.append()
            while watch.syncs() < before + len(names):
                await asyncio.sleep(0.001)
            watch.gate.set()
            await asyncio.gather(*(client.durable() for client in clients))

    asyncio.run(body())


@pytest.mark.parametrize("shards", [3, 4, 5])
def test_from_some_files_on_the_volume_is_synced_as_a_whole(tmp_path: Path, shards: int) -> None:
    files = WatchedFiles()
    watch = files.watch
    whole = f"{tmp_path}/"

    async def body() -> None:
        limits = VolumeLimits(sync_together_from=4)
        async with running(made(files, tmp_path, limits)) as volume:
            clients = [Client(volume, f"shard-{number}") for number in range(shards)]
            for client in clients:
                await client.format()
                client.append()
                await client.durable()
            watch.events.clear()
            for client in clients:
                client.append()
            await asyncio.gather(*(client.durable() for client in clients))

    asyncio.run(body())
    synced = [path for what, path in watch.events if what == "sync"]
    if shards < 4:
        assert len(synced) == 2 * shards, "entries, then slots"
        assert whole not in synced
    else:
        assert synced == [whole, whole], "entries, then slots"
    assert watch.events[-1] == ("close", whole)


def test_a_volume_that_cannot_be_synced_as_a_whole_is_synced_by_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = WatchedFiles()
    monkeypatch.setattr(WatchedFiles, "open_volume", lambda self, path: None)

    async def body() -> None:
        async with running(made(files, tmp_path, VolumeLimits(sync_together_from=1))) as volume:
            client = Client(volume, "a")
            await client.format()
            client.append()
            await client.durable()

    asyncio.run(body())
    assert files.watch.syncs(f"{tmp_path}/a/0") == 2, "entries, slots"


# --- the end -------------------------------------------------------------------------------------


def test_a_cancelled_volume_finishes_its_batch_and_closes_its_files(tmp_path: Path) -> None:
    files = WatchedFiles()
    watch = files.watch

    async def body() -> Client:
        volume = made(files, tmp_path)
        task = asyncio.create_task(volume.run())
        client = Client(volume, "a")
        await client.format()
        client.append()
        await client.durable()
        watch.close_gate()
        client.append(3)
        await asyncio.to_thread(watch.reached.wait)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        assert watch.open_files > 0
        watch.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert watch.open_files == 0
        assert client.reported[-1] == client.token, "with their slots"
        return client

    client = asyncio.run(body())
    assert reopened(tmp_path, ["a"]) == [client.entries]


def test_what_the_last_batch_made_durable_is_reported(tmp_path: Path) -> None:
    files = WatchedFiles()
    watch = files.watch

    async def body() -> None:
        volume = made(files, tmp_path)
        task = asyncio.create_task(volume.run())
        client = Client(volume, "a")
        await client.format()
        watch.close_gate()
        token = client.promise(2)
        await asyncio.to_thread(watch.reached.wait)
        task.cancel()
        watch.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.reported[-1] == token

    asyncio.run(body())


# --- durability ----------------------------------------------------------------------------------


def test_M9_by_default_nothing_is_reported_before_its_sync(tmp_path: Path) -> None:
    files = WatchedFiles()
    events = files.watch.events

    async def body() -> None:
        async with running(made(files, tmp_path)) as volume:
            client = Client(volume, "a", lambda end: events.append(("token", str(end))))
            assert not client.store.relaxed
            await client.format()
            client.append()
            await client.durable()
            events.clear()
            client.append()
            await client.durable()

    asyncio.run(body())
    ends = events.index(("token", "2"))
    assert [what for what, _ in events[: ends + 1]] == ["write", "sync", "write", "sync", "token"]


def test_M9_relaxed_is_opt_in_and_still_syncs_promises(tmp_path: Path) -> None:
    files = WatchedFiles()
    watch = files.watch

    async def body() -> list[Client]:
        async with running(made(files, tmp_path, VolumeLimits(sync_together_from=1))) as volume:
            relaxed, strict = clients = [Client(volume, name) for name in ("relaxed", "strict")]
            for client in clients:
                await client.format()
                client.append()
                await client.durable()
            relaxed.hosted.tend(Relax(True))
            relaxed.sync()
            await relaxed.durable()
            watch.events.clear()
            relaxed.append(10)
            await relaxed.durable()
            assert watch.syncs() == 0
            relaxed.promise(2)
            await relaxed.durable()
            assert (watch.syncs("superblock"), watch.syncs()) == (2, 3)
            watch.events.clear()
            strict.append()
            await strict.durable()
            assert watch.syncs() == 2
            return clients

    clients = asyncio.run(body())
    for client, found in zip(clients, reopened(tmp_path, ("relaxed", "strict")), strict=True):
        assert ordered(client)
        assert found == client.entries
    assert clients[0].store.files.root is not None
    assert clients[0].store.files.root.superblock.epoch == 2
