"""kopf on a thread and a loop of its own, started again if it ends.

When kopf ends it cancels every task of its loop that it does not know, ours among them, so it gets
a loop to itself.  What it hears is handed over to ours, in order.  It ends by itself only when the
API server answers something that cannot be passed over; then the watches begin anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import kopf

from shardlog.process.logs import Logger
from shardlog_operator.handlers import Connect, kopf_settings, registry_of
from shardlog_operator.watched import Watched

AGAIN_S = 2.0
STOP_S = 10.0
IDENTITY = "shardlog-operator"


class Watching:
    """`run` is a task for as long as the API is watched."""

    def __init__(
        self, watched: Watched, namespace: str, node_selector: str, connect: Connect, log: Logger
    ) -> None:
        self._watched = watched
        self._namespace = namespace
        self._node_selector = node_selector
        self._connect = connect
        self._log = log
        # Why the watches ended last: for people.
        self.failure: str = ""

    async def run(self) -> None:
        while True:
            try:
                await self._once()
            except Exception as failure:
                self.failure = f"{type(failure).__name__}: {failure}"
                self._log.warning("watches begin anew", why=self.failure)
            await asyncio.sleep(AGAIN_S)

    async def _once(self) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        stop = threading.Event()

        def hand_over(take: Callable[..., None], *told: Any) -> None:
            loop.call_soon_threadsafe(take, *told)

        def watch() -> None:
            try:
                asyncio.run(self._operator(hand_over, stop))
            except BaseException as failure:
                outcome: BaseException | None = failure
            else:
                outcome = None
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, ended, outcome)

        thread = threading.Thread(target=watch, name="kopf", daemon=True)
        thread.start()
        try:
            await ended
        finally:
            stop.set()
            await asyncio.to_thread(thread.join, STOP_S)

    async def _operator(self, hand_over: Callable[..., None], stop: threading.Event) -> None:
        await kopf.operator(
            registry=registry_of(self._watched, self._connect, hand_over),
            settings=kopf_settings(self._node_selector),
            namespaces=[self._namespace],
            standalone=True,
            # Otherwise the user is looked up, and the user of a container has no name.
            identity=cast(Any, IDENTITY),
            stop_flag=stop,
        )


def _settle(ended: asyncio.Future[None], outcome: BaseException | None) -> None:
    if ended.done():
        return
    if isinstance(outcome, Exception):
        ended.set_exception(outcome)
    else:
        ended.set_result(None)
