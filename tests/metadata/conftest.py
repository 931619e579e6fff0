"""Tests here may be coroutines: each gets an event loop of its own.

The limit is no figure of merit.  A store that misses a change leaves its watcher waiting, and that
has to end as a failed test.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from metadata.backends import Backend, MemoryBackend, SqliteBackend
from shardlog.metadata.sqlite import THREAD_NAME

GIVE_UP_S = 120


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(in_time(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})))
    return True


async def in_time(test: Awaitable[None]) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        await test


@pytest.fixture(params=[MemoryBackend, SqliteBackend], ids=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend: Backend = request.param(tmp_path)
    yield backend
    assert backend.all_closed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]
