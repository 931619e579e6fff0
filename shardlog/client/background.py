"""Tasks that run behind a client's calls: whatever one dies of, its callers get a typed failure.

Every task of the client is made by `start`, and everyone who depends on one asks `result_of` or
`death_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from shardlog.client.failures import ClientFailure, Closed, InternalFailure

T = TypeVar("T")


def start(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task in the running loop.  A failure that nobody asks for is not logged."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_retrieve)
    return task


async def result_of(task: asyncio.Task[T]) -> T:
    """What a task returns, which others may wait for too; raises what `death_of` returns.

    Cancelling the caller does not cancel the task.
    """
    current = asyncio.current_task()
    try:
        return await asyncio.shield(task)
    except ClientFailure:
        raise
    except BaseException:
        if not task.done() or (current is not None and current.cancelling()):
            raise  # the caller was cancelled, not the task
        failure = death_of(task)
        assert failure is not None, "a task that raised has failed"
        raise failure from failure.__cause__


def death_of(task: asyncio.Future[Any]) -> ClientFailure | None:
    """What those who depend on a task are told when it is done; None if it succeeded."""
    if task.cancelled():
        return Closed("the client is closed, or a task of it was cancelled")
    failure = task.exception()
    return None if failure is None else typed(failure)


def typed(failure: BaseException) -> ClientFailure:
    """The failure itself, or an `InternalFailure` that it is the cause of."""
    if isinstance(failure, ClientFailure):
        return failure
    internal = InternalFailure(f"{type(failure).__name__}: {failure}")
    internal.__cause__ = failure
    return internal


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
