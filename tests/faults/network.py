"""A network between processes on one machine that can be cut.

Proxies on loopback, not network namespaces: these need root and `nft`, a proxy needs neither, and
it can cut one direction of one pair.  One stands before every port of the data plane and of the
control plane; addresses reach everybody through the coordinator, so nobody finds a way around.
Who calls is read from the HELLO that passes; the control plane has one caller, the coordinator.

A cut is silent, as between machines: nothing is reset, connections can still be made but nobody
greets, and what is on its way waits in buffers.  When the cut heals it arrives, in order, as TCP
would send it again; a side that has closed meanwhile is seen to have closed only then.  What a
proxy cannot show is a sender's own kernel noticing that nothing is acknowledged: only the silence
of the other side tells, which is the harder case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

from shardlog.transport.failures import MalformedFrame
from shardlog.transport.frames import Decoder
from shardlog.transport.handshake import Role, decode_hello

COORDINATOR = "coordinator"
CLIENTS = "clients"
PIECE_BYTES = 1 << 16

Direction = tuple[str, str]
"""Who speaks to whom."""


class Network:
    """Cuts and delays by direction; a pair of names that is not listed is whole."""

    def __init__(self) -> None:
        self.delay_ms: dict[Direction, int] = {}
        self.alter: Callable[[str, str, bytes], bytes] | None = None
        """What becomes of the bytes that somebody says to somebody; TCP would not notice."""
        self._cut: set[Direction] = set()
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows: set[Flow] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for server in self._servers:
                server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def data(self, node: str, target: str) -> str:
        """Where to go instead."""
        return await self._listen(node, target, None)

    async def control(self, node: str, target: str) -> str:
        return await self._listen(node, target, COORDINATOR)

    # --- faults ----------------------------------------------------------------------------------

    def cut(self, *directions: Direction) -> None:
        self._cut.update(directions)
        self._tell()

    def cut_off(self, node: str, others: list[str]) -> None:
        """Nobody hears it, and it hears nobody."""
        self.cut(*both_ways(node, others))

    def heal(self) -> None:
        self._cut.clear()
        self.delay_ms.clear()
        self._tell()

    def reset(self, node: str) -> None:
        """All connections to a node end with a reset."""
        for flow in list(self._flows):
            if flow.there == node:
                flow.abort()

    def passes(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut

    async def until_passing(self, source: str, target: str) -> None:
        while not self.passes(source, target):
            await self._changed.wait()
        delay_ms = self.delay_ms.get((source, target), 0)
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- connections -----------------------------------------------------------------------------

    async def _listen(self, node: str, target: str, caller: str | None) -> str:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            flow = Flow(self, node, reader, writer)
            task = asyncio.create_task(self._carry(flow, target, caller))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _carry(self, flow: Flow, target: str, caller: str | None) -> None:
        self._flows.add(flow)
        try:
            await flow.run(target, caller)
        except (OSError, MalformedFrame):
            pass  # one side has gone, or never was: the other is told below
        finally:
            flow.abort()
            self._flows.discard(flow)


class Flow:
    """One connection to the node `there`, and the one that goes on behind the proxy."""

    def __init__(
        self,
        network: Network,
        there: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.there = there
        self._network = network
        self._reader = reader
        self._writers = [writer]

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def run(self, target: str, caller: str | None) -> None:
        greeting = b""
        if caller is None:
            caller, greeting = await greeted(self._reader)
        network, there = self._network, self.there
        await network.until_passing(caller, there)
        host, _, port = target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self._writers.append(writer)
        writer.write(greeting)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forward(self._reader, writer, caller, there))
            group.create_task(self._forward(reader, self._writers[0], there, caller))

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: str,
        target: str,
    ) -> None:
        """Until one side ends, which ends both; but what is cut ends nothing."""
        with suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                await self._network.until_passing(source, target)
                if self._network.alter is not None:
                    data = self._network.alter(source, target, data)
                writer.write(data)
                await writer.drain()
        await self._network.until_passing(source, target)
        self.abort()


async def greeted(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Who calls: a node by its name, all clients by one; and the bytes that said so."""
    taken = b""
    decoder = Decoder()
    while True:
        data = await reader.read(PIECE_BYTES)
        if not data:
            raise ConnectionResetError("ended before the greeting")
        taken += data
        frames = decoder.feed(data)
        if frames:
            hello = decode_hello(frames[0])
            return hello.name if hello.role is Role.NODE else CLIENTS, taken


def both_ways(node: str, others: list[str]) -> Iterator[Direction]:
    for other in others:
        yield node, other
        yield other, node
