"""Several processes on one SQLite metadata file, and processes that are killed."""

import asyncio
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from random import Random

from metadata.backends import put
from shardlog.metadata.sqlite import SqliteStore
from shardlog.metadata.store import Change, Relisted, Watch

WRITER = Path(__file__).with_name("writer.py")
KILLS = 30


async def start(path: Path, key: str, count: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(WRITER), str(path), key, str(count), stdout=PIPE, stderr=PIPE
    )


async def answered(process: Process) -> list[tuple[str, int, bytes]]:
    """The writes that the process had an answer to, once it has ended."""
    out, err = await process.communicate()
    assert err == b""
    return answers(out)


def answers(out: bytes) -> list[tuple[str, int, bytes]]:
    whole = out[: out.rfind(b"\n") + 1]
    lines = [line.split() for line in whole.splitlines() if line != b"open"]
    return [(key.decode(), int(version), number) for key, version, number in lines]


async def changes_until(watch: Watch, key: str) -> list[Change]:
    told: list[Change] = []
    async for news in watch:
        assert not isinstance(news, Relisted)
        if news.key == key:
            return told
        told.append(news)
    raise AssertionError("a watch does not end")


async def test_processes_that_write_at_once_lose_nothing(tmp_path: Path):
    count = 100
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path)
    async with store.watch("", 1) as watch:
        told = asyncio.create_task(changes_until(watch, "end"))
        processes = [await start(path, key, count) for key in ("one", "two")]
        lists = await asyncio.gather(*(answered(process) for process in processes))
        assert [process.returncode for process in processes] == [0, 0]
        await put(store, "end", b"")
        seen = [(change.key, change.revision, change.value) for change in await told]
    assert seen == sorted((write for each in lists for write in each), key=lambda write: write[1])
    assert [revision for _, revision, _ in seen] == list(range(1, 4 * count + 1))
    shared = await store.get("shared")
    assert shared
    assert shared.value == b"%d" % (2 * count)
    await store.close()


async def test_a_file_made_by_many_processes_at_once(tmp_path: Path):
    for trial in range(3):
        path = tmp_path / f"{trial}.db"
        processes = [await start(path, f"k{n}", 1) for n in range(6)]
        lists = await asyncio.gather(*(answered(process) for process in processes))
        writes = sorted(version for each in lists for _, version, _ in each)
        assert writes == list(range(1, 13))


async def test_no_answered_write_is_lost_when_writers_are_killed(tmp_path: Path):
    path = tmp_path / "metadata.db"
    random = Random(4)
    survivors: dict[str, tuple[int, int]] = {}
    reader = await SqliteStore.open(path, changes_kept=1_000_000)
    for kill in range(KILLS):
        # Every other time nobody else holds the file, so that it is recovered from its WAL alone.
        if kill % 2:
            await reader.close()
        process = await start(path, f"own{kill % 3}", 1_000_000)
        assert process.stdout
        lines = [await process.stdout.readline() for _ in range(1 + random.randrange(30))]
        await asyncio.sleep(random.random() * 0.003)
        process.kill()
        lines.append(await process.stdout.read())
        await process.wait()
        for key, version, number in answers(b"".join(lines)):
            survivors[key] = (version, int(number))
        if kill % 2:
            reader = await SqliteStore.open(path, changes_kept=1_000_000)
        for key, (version, least) in survivors.items():
            record = await reader.get(key)
            assert record, key
            # The last write of a killed process may stand although nobody was told.
            assert record.version >= version
            assert 0 <= int(record.value) - least <= (record.version > version)
            survivors[key] = (record.version, int(record.value))
    assert set(survivors) == {"shared", "own0", "own1", "own2"}
    await reader.close()


async def test_a_killed_process_does_not_hold_up_others(tmp_path: Path):
    """The write lock goes with its process."""
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
            "c.execute('BEGIN IMMEDIATE'); c.execute('DELETE FROM records');"
            "print('held', flush=True); time.sleep(600)",
            str(path),
        ],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout
    holder.stdout.readline()
    writing = asyncio.create_task(store.compare_and_swap("a", 0, b"1"))
    await asyncio.sleep(0.02)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert (await writing).done
    await store.close()
