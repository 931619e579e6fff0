"""A network between a store and a member of etcd that can be cut, or lose all answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Bytes go both ways until `cut`; after `lose_answers` only those to etcd do."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._answers = asyncio.Event()
        self._answers.set()
        self.endpoint = ""
        self.answered_bytes = 0

    def cut(self) -> None:
        """Every connection breaks, and so does every new one."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def lose_answers(self) -> None:
        self._answers.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._answers.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        onward_reader, onward_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, onward_writer}
        for step in (
            self._pass(reader, onward_writer, None),
            self._pass(onward_reader, writer, self._answers),
        ):
            task = asyncio.create_task(step)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        allowed: asyncio.Event | None,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if allowed:
                    await allowed.wait()
                    self.answered_bytes += len(data)
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        writer.transport.abort()


@asynccontextmanager
async def relay_to(target: str) -> AsyncIterator[Relay]:
    relay = Relay(target)
    listening = await asyncio.start_server(relay._connected, "127.0.0.1", 0)
    relay.endpoint = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        listening.close()
        relay.cut()
        relay.mend()
        await asyncio.gather(*relay._tasks, return_exceptions=True)
