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
from etcd.cluster import EtcdCluster

from metadata.backends import Backend, EtcdBackend, MemoryBackend, SqliteBackend
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


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """One member for all tests that do it no harm."""
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(params=["memory", "sqlite", pytest.param("etcd", marks=pytest.mark.needs("etcd"))])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend: Backend
    match request.param:
        case "memory":
            backend = MemoryBackend(tmp_path)
        case "sqlite":
            backend = SqliteBackend(tmp_path)
        case _:
            backend = EtcdBackend(tmp_path, request.getfixturevalue("etcd"))
    yield backend
    assert backend.all_closed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]
