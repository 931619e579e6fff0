"""Old entries that pass through memory: dropped from it when they are durable, and not before."""

import asyncio
from pathlib import Path

import pytest

from shardlog.storage.segment import GROUP_BYTES_MAX
from storage.volumes import PLAN, Client, WatchedFiles, made, reopened, running


def written(directory: Path, passing: bool) -> tuple[Client, WatchedFiles]:
    """Some rounds of entries; what the files did since the shard was formatted."""
    files = WatchedFiles()

    async def body() -> Client:
        async with running(made(files, directory)) as volume:
            client = Client(volume, "orders")
            await client.format()
            files.watch.events.clear()
            client.store.passing = passing
            for _ in range(4):
                client.append(3, 5000)
                await client.durable()
            return client

    return asyncio.run(body()), files


def test_what_passes_is_dropped_behind_its_sync(tmp_path: Path):
    client, files = written(tmp_path, passing=True)
    events = [event for event in files.watch.events if event[1].endswith(".segment")]
    drops = [at for at, (what, _) in enumerate(events) if what == "drop"]
    assert drops
    for at in drops:
        before = [what for what, path in events[:at] if path == events[at][1]]
        assert before[-1] in ("sync", "drop")
        assert "write" in before
    assert [client.store.read(entry.header) for entry in client.entries] == client.entries
    assert reopened(tmp_path, ["orders"]) == [client.entries]


def test_no_slot_is_dropped_and_nothing_that_is_not_synced(tmp_path: Path):
    client, files = written(tmp_path, passing=True)
    heads = {each.path: each for each in client.store.files.segments.items}
    for path, position, length in files.watch.dropped:
        assert position >= heads[path].head.body_start
        assert position + length <= heads[path].position
        assert length <= 2 * GROUP_BYTES_MAX + PLAN.size_max


def test_what_does_not_pass_stays(tmp_path: Path):
    _, files = written(tmp_path, passing=False)
    assert not files.watch.dropped


@pytest.mark.parametrize("size", [1, 4096, 10_000])
def test_what_was_dropped_can_be_read(tmp_path: Path, size: int):
    with_real = WatchedFiles()
    file = with_real.create(str(tmp_path / "a"))
    file.write(0, [b"x" * size])
    file.drop(0, size)
    assert file.read(0, size) == b"x" * size
    file.close()
