"""Who is looked at when: bursts become one look, nobody is worked on twice at a time."""

from __future__ import annotations

import asyncio
import time

import pytest

from shardlog_operator.scheduling import Schedule


async def until_done(schedule: Schedule, number: int) -> None:
    async with asyncio.timeout(30):
        while schedule.done < number:
            await asyncio.sleep(0.005)


def run(schedule: Schedule, work, story) -> None:
    async def told() -> None:
        task = asyncio.create_task(schedule.run(work))
        try:
            await story()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(told())


def test_a_burst_is_one_look():
    schedule, seen = Schedule(time.monotonic, 2), []

    async def work(name: str) -> None:
        seen.append(name)

    async def story() -> None:
        for _ in range(100):
            schedule.soon("a")
        schedule.soon("b")
        await until_done(schedule, 2)

    run(schedule, work, story)
    assert sorted(seen) == ["a", "b"]


def test_the_earlier_time_wins():
    schedule, seen = Schedule(time.monotonic, 1), []

    async def work(name: str) -> None:
        seen.append(name)

    async def story() -> None:
        schedule.soon("a", 3600)
        schedule.soon("b", 0.05)
        schedule.soon("a", 0.01)
        schedule.soon("a", 1800)
        await until_done(schedule, 2)

    run(schedule, work, story)
    assert seen == ["a", "b"]


def test_news_while_it_is_worked_on_bring_another_look():
    schedule, seen, going = Schedule(time.monotonic, 4), [], asyncio.Event()

    async def work(name: str) -> None:
        seen.append("in")
        await going.wait()
        seen.append("out")

    async def story() -> None:
        schedule.soon("a")
        while not seen:
            await asyncio.sleep(0.005)
        schedule.soon("a")
        schedule.soon("a")
        await asyncio.sleep(0.02)
        going.set()
        await until_done(schedule, 2)

    run(schedule, work, story)
    assert seen == ["in", "out", "in", "out"]


def test_it_comes_back_by_itself():
    schedule, seen = Schedule(time.monotonic, 1), []

    async def work(name: str) -> float | None:
        seen.append(name)
        return 0.001 if len(seen) < 3 else None

    async def story() -> None:
        schedule.soon("a")
        await until_done(schedule, 3)

    run(schedule, work, story)
    assert seen == ["a"] * 3


def test_no_more_at_once_than_there_are_workers():
    schedule, now, most = Schedule(time.monotonic, 3), 0, 0

    async def work(name: str) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1

    async def story() -> None:
        for number in range(20):
            schedule.soon(f"shard-{number}")
        await until_done(schedule, 20)

    run(schedule, work, story)
    assert most == 3


def test_what_fails_is_not_hidden():
    schedule = Schedule(time.monotonic, 1)

    async def work(name: str) -> None:
        raise LookupError(name)

    async def story() -> None:
        schedule.soon("a")
        async with asyncio.timeout(30):
            await schedule.run(work)

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(story())
    assert caught.group_contains(LookupError)
