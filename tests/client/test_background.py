"""Whatever a task of the client dies of, its callers get a typed failure at once."""

import ast
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import shardlog.client
from client.cluster import SHARD, Story, story, until
from shardlog.client import ClientLimits
from shardlog.client.blocking import Client as BlockingClient
from shardlog.client.blocking import Producer as BlockingProducer
from shardlog.client.delivery import Delivery
from shardlog.client.failures import (
    ClientFailure,
    Closed,
    FateUnknown,
    InternalFailure,
)
from shardlog.client.links import Links
from shardlog.client.raw import RawReader
from shardlog.client.reading import EntryStream
from shardlog.client.route import Route

PATIENT = ClientLimits(deadline_ms=600_000, attempt_ms=50)
"""Nobody is told by a deadline while a test runs."""


async def append(s: Story) -> None:
    await s.client.producer(SHARD).append(b"x")


async def append_unanswered(s: Story) -> None:
    async with s.client.producer(SHARD) as producer:
        await producer.append(b"x")
        s.proxies[s.leader].to_client = False
        await producer.append(b"y")


async def end(s: Story) -> None:
    await s.client.end(SHARD)


async def read(s: Story) -> None:
    async for _ in s.client.read(SHARD):
        pass


async def raw(s: Story) -> None:
    async for _ in s.client.raw(SHARD).entries(0, 5):
        pass


TASKS = [
    (Delivery, "_run", append),
    (Delivery, "_doubt", append_unanswered),
    (Route, "_find", append),
    (Route, "_find", end),
    (Links, "_connect", append),
    (Links, "_connect", end),
    (EntryStream, "_fetch", read),
    (RawReader, "_read", raw),
]
OF_THE_BLOCKING_CLIENT = {
    "self._make_room",  # below
    "stream.aclose",  # nobody waits for it
}
Call = Callable[[Story], Coroutine[Any, Any, None]]


def test_B1_these_are_all_tasks():
    """A task that is not made by `background.start` is one that nobody looks after."""
    made, started = [], set()
    for path in Path(shardlog.client.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name.endswith(("create_task", "ensure_future", "TaskGroup")):
                    made.append(path.name)
                elif name in ("start", "background.start"):
                    assert isinstance(node.args[0], ast.Call)
                    started.add(ast.unparse(node.args[0].func))
    assert made == ["background.py"]
    assert started == {f"self.{method}" for _, method, _ in TASKS} | OF_THE_BLOCKING_CLIENT


@pytest.mark.parametrize("death", ["raises", "is cancelled"])
@pytest.mark.parametrize(("owner", "method", "call"), TASKS)
def test_B1_a_task_that_dies_fails_its_callers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    call: Call,
    death: str,
):
    async def dies(*args: Any) -> None:
        if death == "raises":
            raise LookupError("injected")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @story(tmp_path, proxied=True, client_limits=PATIENT)
    async def _(s: Story) -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, dies)
            with pytest.raises(ClientFailure) as found:
                await asyncio.wait_for(call(s), 30)
        failure: BaseException = found.value
        if isinstance(failure, FateUnknown):
            failure = failure.last
        if death == "raises":
            assert isinstance(failure, InternalFailure)
            assert isinstance(failure.__cause__, LookupError)
        else:
            assert isinstance(failure, Closed)
        s.proxies[s.leader].to_client = True
        await append(s)  # the client can go on
        await read(s)
        assert not complaints


def test_B1_a_blocking_producer_that_cannot_wait_for_room_fails_its_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def dies(*args: Any) -> None:
        raise LookupError("injected")

    def written(url: str) -> None:
        with BlockingClient(url, limits=PATIENT) as client:
            producer = client.producer(SHARD, buffer_bytes_max=1)
            with monkeypatch.context() as patch:
                patch.setattr(BlockingProducer, "_make_room", dies)
                client._thread.call(lambda: producer._producer.send(b"fills the buffer"))
                with pytest.raises(InternalFailure) as found:
                    client._thread.call(lambda: producer.send(b"x")).result(30)
            assert isinstance(found.value.__cause__, LookupError)
            producer.append(b"y")

    @story(tmp_path)
    async def _(s: Story) -> None:

        await asyncio.to_thread(written, s.cluster.url)


def test_B1_a_batch_that_cannot_be_made_fails_its_own_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    @story(tmp_path, client_limits=PATIENT)
    async def _(s: Story) -> None:
        def dies(*args: Any) -> None:
            raise MemoryError

        producer = s.client.producer(SHARD)
        with monkeypatch.context() as patch:
            patch.setattr("shardlog.client.batching.seal_body", dies)
            future = producer.send(b"x")
            await until(future.done)
        assert isinstance(future.exception(), InternalFailure)
        assert producer.buffered_bytes == 0
        await producer.append(b"y")
