"""Failures on a volume of many shards: each is met by those whom it concerns, and by nobody else.

Volumes that are full or read-only are real ones, in processes of their own.
"""

import asyncio
from pathlib import Path

import pytest

from shardlog.storage.failures import DiskFailed, DiskFull, VolumeInUse
from shardlog.storage.handles import Handles
from shardlog.storage.real_files import RealFiles
from shardlog.storage.volume import Volume, VolumeLimits
from storage.processes import run, run_mounted
from storage.volumes import Client, WatchedFiles, made, reopened, running

NAMES = ("a", "b", "c")


async def begun(volume: Volume) -> list[Client]:
    """Three shards with one entry each."""
    clients = [Client(volume, name) for name in NAMES]
    for client in clients:
        await client.format()
        client.append()
        await client.durable()
    return clients


# --- syncs that fail -----------------------------------------------------------------------------


def test_a_failed_sync_stops_only_its_replica(tmp_path: Path) -> None:
    files = WatchedFiles()
    watch = files.watch

    async def body() -> list[Client]:
        async with running(made(files, tmp_path)) as volume:
            a, b, c = clients = await begun(volume)
            watch.failing = lambda path: "/b/" in path
            tokens = list(b.reported)
            for client in clients:
                client.append(3)
            await asyncio.gather(a.durable(), c.durable(), b.failed())
            watch.failing = lambda path: False
            tried = watch.syncs("/b/")
            for client in clients:
                client.append(3)
            volume.wake(b.hosted)
            await asyncio.gather(a.durable(), c.durable())
            assert watch.syncs("/b/") == tried, "never tried again"
            assert b.reported == tokens
            assert b.store.broken
            assert [type(failure) for failure in b.failures] == [DiskFailed]
            assert not a.failures
            assert not c.failures
            return clients

    a, b, c = asyncio.run(body())
    found = reopened(tmp_path, NAMES)
    assert found[0] == a.entries
    assert found[2] == c.entries
    assert b.entries[:1] == found[1][:1], "what was reported is there, whatever became of the rest"


def test_a_failed_sync_of_slots_is_as_bad(tmp_path: Path) -> None:
    files = WatchedFiles()
    watch = files.watch

    async def body() -> None:
        async with running(made(files, tmp_path)) as volume:
            _, b, _ = await begun(volume)
            before = watch.syncs("/b/")
            watch.failing = lambda path: "/b/" in path and watch.syncs("/b/") == before + 2
            token = b.append()
            await b.failed()
            assert token not in b.reported
            assert watch.syncs("/b/") == before + 2

    asyncio.run(body())


def test_a_promise_whose_sync_failed_is_not_made(tmp_path: Path) -> None:
    files = WatchedFiles()

    async def body() -> None:
        async with running(made(files, tmp_path)) as volume:
            a, b, _ = await begun(volume)
            files.watch.failing = lambda path: path.endswith("/b/superblock")
            tokens = b.promise(2), a.promise(2)
            await asyncio.gather(a.durable(), b.failed())
            assert tokens[0] not in b.reported
            assert tokens[1] in a.reported
            assert b.store.broken

    asyncio.run(body())


def test_a_failed_sync_of_the_whole_volume_stops_all_that_were_in_it(tmp_path: Path) -> None:
    files = WatchedFiles()
    watch = files.watch
    whole = f"{tmp_path}/"

    async def body() -> None:
        async with running(made(files, tmp_path, VolumeLimits(sync_together_from=2))) as volume:
            a, b, c = await begun(volume)
            watch.failing = lambda path: path == whole
            tokens = a.append(), b.append(), c.promise(2)
            await asyncio.gather(a.failed(), b.failed(), c.durable())
            assert watch.syncs(whole) >= 1
            assert [path for what, path in watch.events if path == whole] == [whole]
            assert tokens[0] not in a.reported
            assert tokens[1] not in b.reported
            assert a.store.broken
            assert b.store.broken
            assert not c.store.broken, "its promise was synced by itself"
            c.append()
            await c.durable()
            assert len(a.failures) == len(b.failures) == 1
            assert not c.failures

    asyncio.run(body())


# --- a stalled replica ---------------------------------------------------------------------------


def test_a_stalled_replica_is_tried_when_its_time_has_come_only(tmp_path: Path) -> None:
    files = WatchedFiles()
    watch = files.watch

    def tries() -> int:
        return sum(1 for what, path in watch.events if what == "create" and "/a/" in path)

    async def body() -> None:
        limits = VolumeLimits(retry_ms=3_600_000)
        async with running(made(files, tmp_path, limits)) as volume:
            a, b, _ = await begun(volume)
            watch.full = True
            before = tries()
            a.append(size=40_000)
            await a.stalled()
            for _ in range(20):
                a.append()
                b.append()
                await b.durable()
            assert tries() == before + 1
            why = a.store.stalled
            assert isinstance(why, DiskFull)
            assert not a.store.broken
            watch.full = False
            volume.wake(a.hosted)
            await a.durable()
            assert a.store.stalled is None
            assert a.reported == list(range(1, a.token + 1))

    asyncio.run(body())


def test_a_stalled_replica_goes_on_by_itself(tmp_path: Path) -> None:
    files = WatchedFiles()

    async def body() -> list[Client]:
        async with running(made(files, tmp_path, VolumeLimits(retry_ms=1))) as volume:
            clients = await begun(volume)
            files.watch.full = True
            for client in clients:
                client.append(10, size=20_000)
            for client in clients:
                await client.stalled()
            assert all(client.store.read(client.entries[-1].header) for client in clients)
            files.watch.full = False
            await asyncio.gather(*(client.durable() for client in clients))
            return clients

    clients = asyncio.run(body())
    assert reopened(tmp_path, NAMES) == [client.entries for client in clients]
    for client in clients:
        assert client.reported == list(range(1, client.token + 1))


# --- in a process of its own ---------------------------------------------------------------------

FULL = """
import asyncio, os, sys
from shardlog.storage.failures import DiskFull
from shardlog.storage.handles import Handles
from shardlog.storage.real_files import RealFiles
from shardlog.storage.volume import VolumeLimits
from storage.volumes import Client, made, reopened, running

base = sys.argv[1]

async def main():
    ballast = base + "/ballast"
    with open(ballast, "wb") as file:
        file.write(bytes(600_000))
    async with running(made(RealFiles(), base + "/volume", VolumeLimits(retry_ms=5))) as volume:
        a, b = clients = [Client(volume, name) for name in "ab"]
        for client in clients:
            await client.format()
            client.append(3)
            await client.durable()
        while a.store.stalled is None:
            token = a.append(size=3000)
            while a.store.stalled is None and token not in a.reported:
                await asyncio.sleep(0.001)
        assert isinstance(a.store.stalled, DiskFull)
        print(a.store.stalled.why)
        a.append(10, size=3000)
        b.append(20)
        b.promise(2)
        await b.durable()
        assert not a.store.broken and not b.store.broken
        reported = len(a.reported)
        assert reported < a.token
        assert a.reported == list(range(1, reported + 1))
        for entry in a.entries:
            assert a.store.read(entry.header) == entry
        os.unlink(ballast)
        await a.durable()
        assert a.store.stalled is None
        assert a.reported == list(range(1, a.token + 1))
        a.append(3)
        await a.durable()
        assert not a.failures and not b.failures
    assert reopened(base + "/volume", "ab") == [a.entries, b.entries]
    print("all there")

asyncio.run(main())
"""

FULL_FROM_THE_START = """
import asyncio, os, sys
from shardlog.storage.handles import Handles
from shardlog.storage.real_files import RealFiles
from shardlog.storage.volume import VolumeLimits
from storage.volumes import Client, made, reopened, running

base = sys.argv[1]

async def main():
    ballast = base + "/ballast"
    async with running(made(RealFiles(), base + "/volume", VolumeLimits(retry_ms=5))) as volume:
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        client = Client(volume, "a")
        formatting = asyncio.create_task(client.format())
        await client.stalled()
        assert not client.reported
        print(client.store.stalled.why)
        os.unlink(ballast)
        await formatting
        client.append(3)
        await client.durable()
    assert reopened(base + "/volume", "a") == [client.entries]
    print("all there")

asyncio.run(main())
"""

READ_ONLY = """
import asyncio, subprocess, sys
from shardlog.storage.failures import ReadOnlyVolume
from shardlog.storage.handles import Handles
from shardlog.storage.real_files import RealFiles
from storage.volumes import Client, made, reopened, running

base = sys.argv[1]

async def main():
    async with running(made(RealFiles(), base)) as volume:
        client = Client(volume, "a")
        await client.format()
        client.append(3)
        await client.durable()
    subprocess.run(["mount", "-o", "remount,ro", base], check=True)
    volume = made(RealFiles(), base)
    try:
        Client(volume, "a")
    except ReadOnlyVolume as failure:
        print(failure.why)
    async with running(volume):
        fresh = Client(volume, "b")
        formatting = asyncio.create_task(fresh.format())
        await fresh.failed()
        formatting.cancel()
        assert isinstance(fresh.failures[0], ReadOnlyVolume) and fresh.store.broken
        print(fresh.failures[0].why)
    subprocess.run(["mount", "-o", "remount,rw", base], check=True)
    assert reopened(base, "a") == [client.entries]
    print("all there")

asyncio.run(main())
"""

FEW_DESCRIPTORS = """
import asyncio, resource, sys
from shardlog.storage.failures import TooManyOpenFiles
from shardlog.storage.handles import Handles
from shardlog.storage.real_files import RealFiles
from shardlog.storage.volume import VolumeLimits
from storage.volumes import Client, made, reopened, running

base, most, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names = [f"shard-{number}" for number in range(100)]

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    limits = VolumeLimits(retry_ms=5, open_files_max=most)
    stalls = 0
    async with running(made(RealFiles(), base, limits)) as volume:
        clients = [Client(volume, name) for name in names]
        waiting = asyncio.gather(*(client.format() for client in clients))
        while not waiting.done():
            await asyncio.sleep(0.001)
        for _ in range(5):
            for client in clients:
                client.append(2)
            waiting = asyncio.gather(*(client.durable() for client in clients))
            while not waiting.done():
                await asyncio.sleep(0)
                stalled = {type(client.store.stalled) for client in clients} - {type(None)}
                stalls += bool(stalled)
                assert stalled <= {TooManyOpenFiles}, stalled
    for client, found in zip(clients, reopened(base, names), strict=True):
        assert client.reported == list(range(1, client.token + 1))
        assert not client.failures
        assert found == client.entries
    print("stalled" if stalls else "never stalled", "all there")

asyncio.run(main())
"""


def test_a_full_volume_stalls_and_goes_on_with_room(tmp_path: Path) -> None:
    assert run_mounted(FULL, tmp_path) == ["no space left on the volume", "all there"]


def test_a_replica_is_made_when_there_is_room(tmp_path: Path) -> None:
    assert run_mounted(FULL_FROM_THE_START, tmp_path) == [
        "no space left on the volume",
        "all there",
    ]


def test_a_read_only_volume_is_told_by_its_type(tmp_path: Path) -> None:
    assert run_mounted(READ_ONLY, tmp_path) == ["the volume is read-only"] * 2 + ["all there"]


@pytest.mark.parametrize(("most", "limit", "found"), [
    (32, 128, "never stalled all there"),
    (1024, 64, "stalled all there"),
])  # fmt: skip
def test_more_shards_than_descriptors(tmp_path: Path, most: int, limit: int, found: str) -> None:
    """Few files are open at once; where the process may open fewer still, shards wait in turn."""
    assert run(FEW_DESCRIPTORS, str(tmp_path), str(most), str(limit)) == [found]


def test_a_volume_has_one_process(tmp_path) -> None:
    directory = str(tmp_path / "volume")
    first = Volume(RealFiles(), directory, "a")
    with pytest.raises(VolumeInUse, match="another process"):
        Volume(RealFiles(), directory, "a")
    first.close()
    Volume(RealFiles(), directory, "a").close()


def test_a_file_in_use_stays_open_when_its_name_is_gone(tmp_path) -> None:
    files = RealFiles()
    for name in ("a", "b"):
        file = files.create(str(tmp_path / name))
        file.write(0, [name.encode()])
        file.close()
    handles = Handles(files)
    with handles.use(str(tmp_path / "a")) as used:
        handles.forget(str(tmp_path / "a"))
        with handles.use(str(tmp_path / "b")) as other:
            assert (used.read(0, 1), other.read(0, 1)) == (b"a", b"b")
    with pytest.raises(DiskFailed):
        used.read(0, 1)
    handles.close()
