"""When the disk is asked from the loop: never if it is slow, and not for long once it stalls."""

import asyncio
import threading
from pathlib import Path

import pytest

from shardlog.storage.failures import DiskFailed
from shardlog.storage.promptness import RANGE, STALL_US, Promptness
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog.storage.volume import VolumeLimits
from storage.volumes import Client, WatchedFiles, made, reopened, running

LIMIT_US = 1000
MANY = 100
ROUNDS = 40


def after(*took_us: float) -> Promptness:
    promptness = Promptness(LIMIT_US)
    for us in took_us:
        promptness.took(us)
    return promptness


def test_a_disk_that_nobody_knows_is_not_prompt():
    assert not Promptness(LIMIT_US).prompt


def test_a_fast_disk_is_prompt_after_some_rounds():
    assert after(*[200] * MANY).prompt


@pytest.mark.parametrize("us", [2 * LIMIT_US, 5000, STALL_US, 10 * STALL_US])
def test_a_slow_disk_never_is(us: float):
    assert not after(*[us] * MANY).prompt
    assert not after(*[200] * MANY, *[us] * MANY).prompt


def test_now_and_then_a_round_waits_for_a_processor():
    assert after(*[200, 200, 200, 5000] * MANY).prompt


def test_two_stalls_in_a_row_are_enough():
    quick = [LIMIT_US / RANGE / 2] * MANY
    assert after(*quick, STALL_US).prompt
    assert not after(*quick, STALL_US, STALL_US).prompt


def test_a_stall_is_forgotten():
    assert after(*[200] * MANY, *[STALL_US] * MANY, *[200] * MANY).prompt


def syncing_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: VolumeLimits, size: int
) -> set[str]:
    """The threads in which the last of many rounds were synced, by name."""
    threads: list[str] = []
    sync = RealFile.sync

    def noted(file: RealFile) -> None:
        threads.append(threading.current_thread().name)
        sync(file)

    async def body() -> None:
        async with running(made(RealFiles(), tmp_path, limits)) as volume:
            client = Client(volume, "orders")
            await client.format()
            for _ in range(ROUNDS):
                client.append(1, size)
                await client.durable()
            assert client.reported == list(range(1, client.token + 1))

    monkeypatch.setattr(RealFile, "sync", noted)
    asyncio.run(body())
    return set(threads[-4:])


PROMPT = VolumeLimits(on_loop_us_max=1 << 40)
"""Any disk is."""


def test_small_rounds_go_to_a_prompt_disk_from_the_loop(tmp_path, monkeypatch):
    assert syncing_threads(tmp_path, monkeypatch, PROMPT, 100) == {"MainThread"}


def test_large_rounds_go_to_a_thread(tmp_path, monkeypatch):
    limits = VolumeLimits(on_loop_us_max=1 << 40, on_loop_bytes_max=1000)
    assert syncing_threads(tmp_path, monkeypatch, limits, 5000) == {"volume"}


def test_all_rounds_of_a_slow_disk_go_to_a_thread(tmp_path, monkeypatch):
    limits = VolumeLimits(on_loop_us_max=0)
    assert syncing_threads(tmp_path, monkeypatch, limits, 100) == {"volume"}


def test_a_sync_that_fails_on_the_loop_stops_its_replica_and_no_other(tmp_path):
    files = WatchedFiles()

    async def body() -> tuple[Client, Client]:
        async with running(made(files, tmp_path, PROMPT)) as volume:
            orders, users = Client(volume, "orders"), Client(volume, "users")
            for client in (orders, users):
                await client.format()
                for _ in range(ROUNDS):
                    client.append(1)
                    await client.durable()
            threads: list[str] = []

            def failing(path: str) -> bool:
                threads.append(threading.current_thread().name)
                return "/orders/" in path

            files.watch.failing = failing
            token = orders.append(1)
            await orders.failed()
            assert threads == ["MainThread"]
            assert token not in orders.reported
            assert [type(failure) for failure in orders.failures] == [DiskFailed]
            users.append(1)
            await users.durable()
            assert not users.failures
            return orders, users

    orders, users = asyncio.run(body())
    found = reopened(tmp_path, ["orders", "users"])
    assert found[0][:ROUNDS] == orders.entries[:ROUNDS]
    assert found[1] == users.entries
