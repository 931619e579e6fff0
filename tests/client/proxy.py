"""A proxy on loopback that stops forwarding without a word, one way or both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """`to_node` and `to_client` say which way bytes still pass; what does not pass is dropped."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.to_node = True
        self.to_client = True
        self.accepted = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """The address to go to instead."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for writer in self._writers:
                writer.transport.abort()

    def silence(self) -> None:
        """Nothing passes any more, and no connection is closed."""
        self.to_node = self.to_client = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        if not self.to_node:
            return
        host, _, port = self.target.rpartition(":")
        try:
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(up_writer)
        self._begin(reader, up_writer, up=True)
        self._begin(up_reader, writer, up=False)

    def _begin(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool
    ) -> None:
        task = asyncio.create_task(self._forward(reader, writer, up))
        self._tasks.add(task)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if self.to_node if up else self.to_client:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        if self.to_node and self.to_client:
            writer.transport.abort()
