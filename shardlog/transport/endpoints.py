"""Opening connections of the data plane, and accepting them.

TLS comes as an `ssl.SSLContext` that somebody else made from settings.  What the operating system,
TLS and asyncio raise is translated here, once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from shardlog.transport.cluster_key import ClusterKey
from shardlog.transport.connection import (
    Connection,
    ConnectionLimits,
    Receiver,
    State,
    WallClock,
)
from shardlog.transport.failures import (
    DeadlineExceeded,
    NotPermitted,
    TransportFailure,
    Unreachable,
)
from shardlog.transport.frames import Frame
from shardlog.transport.handshake import Hello, Reason, Role

BACKLOG = 100
ACCEPT_RETRY_S = 0.1


async def connect(
    host: str,
    port: int,
    *,
    name: str,
    role: Role,
    receiver: Receiver,
    limits: ConnectionLimits,
    wall_ns: WallClock,
    timeout_ms: int,
    tls: ssl.SSLContext | None = None,
    tls_name: str | None = None,
    key: ClusterKey | None = None,
) -> Connection:
    """A connection that has been greeted.  `tls_name` is whom the certificate must name.

    A node needs the `key` of its cluster, and reaches nobody who does not have it.
    """
    loop = asyncio.get_running_loop()
    own = Hello(role, name, limits.frame_bytes_max)
    connection = Connection(own, receiver, limits, wall_ns, calling=True, key=key)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await loop.create_connection(
                lambda: connection,
                host,
                port,
                ssl=tls,
                server_hostname=(tls_name or host) if tls else None,
            )
            await connection.greeted
    except TimeoutError as failure:
        connection.close(Reason.TIMEOUT)
        raise DeadlineExceeded(f"{host}:{port} did not answer in {timeout_ms} ms") from failure
    except ssl.SSLError as failure:
        raise NotPermitted(f"{host}:{port}: {failure}") from failure
    except (OSError, UnicodeError) as failure:  # no such host, or a name that none can have
        raise Unreachable(f"{host}:{port}: {failure}") from failure
    except asyncio.CancelledError:
        connection.close()
        raise
    return connection


class Listener:
    """Accepts connections; `close` ends them all.

    A connection counts from when it is accepted, TLS's handshake included, which has as long as the
    greeting.
    """

    def __init__(self, connections_max: int, handshake_ms: int) -> None:
        self.connections: set[Connection] = set()
        self.connections_max = connections_max
        # Connections that ended before they were greeted.
        self.refused = 0
        # Who was the last of them, and why, for people.
        self.refused_last = ""
        self.closing = False
        self._handshake_s = handshake_ms / 1000
        self._sockets: list[socket.socket] = []
        self._address = ("", 0)
        self._arriving: dict[asyncio.Task[None], socket.socket] = {}

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    async def close(self, text: str = "") -> None:
        """Stop accepting, say goodbye to everyone, and wait until they are gone."""
        self.closing = True
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            loop.remove_reader(listening)
            listening.close()
        for accepted in self._arriving.values():
            # Not by cancelling the task: uvloop may then never say that the connection is lost.
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
        await asyncio.gather(*self._arriving, return_exceptions=True)
        ending = list(self.connections)
        for connection in ending:
            connection.close(text=text)
        for connection in ending:
            await connection.closed()

    async def start(
        self, host: str, port: int, tls: ssl.SSLContext | None, accept: Callable[[], Connection]
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, address in dict.fromkeys((each[0], each[4]) for each in found):
                made = socket.create_server(address[:2], family=family, backlog=BACKLOG)
                made.setblocking(False)
                self._sockets.append(made)
        except OSError as failure:
            for each in self._sockets:
                each.close()
            raise Unreachable(f"{host}:{port}: {failure}") from failure
        bound_host, bound_port, *_ = self._sockets[0].getsockname()
        self._address = (str(bound_host), int(bound_port))
        for each in self._sockets:
            loop.add_reader(each, self._accept, each, tls, accept)

    def _accept(
        self, listening: socket.socket, tls: ssl.SSLContext | None, accept: Callable[[], Connection]
    ) -> None:
        """Take all that wait; not by a task, which may lose a socket when it is cancelled."""
        loop = asyncio.get_running_loop()
        for _ in range(BACKLOG):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # there are too many files: it would be readable again at once
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_RETRY_S, self._accept_again, listening, tls, accept)
                return
            accepted.setblocking(False)
            if tls is not None and self._is_full():  # without TLS it is told why
                self.refused += 1
                accepted.close()
                continue
            task = loop.create_task(self._arrive(accepted, tls, accept))
            self._arriving[task] = accepted
            task.add_done_callback(self._arrived)

    def _accept_again(
        self, listening: socket.socket, tls: ssl.SSLContext | None, accept: Callable[[], Connection]
    ) -> None:
        if not self.closing:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening, tls, accept)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._arriving.pop(task, None)

    def _is_full(self) -> bool:
        return len(self.connections) + len(self._arriving) >= self.connections_max

    async def _arrive(
        self, accepted: socket.socket, tls: ssl.SSLContext | None, accept: Callable[[], Connection]
    ) -> None:
        loop = asyncio.get_running_loop()
        handshake_s = self._handshake_s if tls is not None else None
        try:
            await loop.connect_accepted_socket(
                accept, accepted, ssl=tls, ssl_handshake_timeout=handshake_s
            )
        except (OSError, ssl.SSLError):  # no handshake, or none in time
            self.refused += 1
            accepted.close()


class _Accepted(Connection):
    """One that its listener knows of, from the first byte to the last."""

    listener: Listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        listener = self.listener
        if listener.closing:
            self.transport.abort()  # accepted while we stopped listening
        if len(listener.connections) >= listener.connections_max:
            self.close(Reason.OVERLOADED, f"{listener.connections_max} connections are open")
        listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.listener.connections.discard(self)
        super().connection_lost(exc)
        if not self.version:
            self.listener.refused += 1
            self.listener.refused_last = f"{self.peer}: {self.failure}"


async def listen(
    host: str,
    port: int,
    *,
    name: str,
    receiver: Callable[[], Receiver],
    limits: ConnectionLimits,
    wall_ns: WallClock,
    connections_max: int = 10_000,
    tls: ssl.SSLContext | None = None,
    key: ClusterKey | None = None,
) -> Listener:
    """Accept connections as the node `name`; each gets a receiver of its own.

    Without the `key` of a cluster only clients are accepted.
    """
    listener = Listener(connections_max, limits.greeting_ms)
    own = Hello(Role.NODE, name, limits.frame_bytes_max)

    def accept() -> Connection:
        connection = _Accepted(own, receiver(), limits, wall_ns, calling=False, key=key)
        connection.listener = listener
        return connection

    await listener.start(host, port, tls, accept)
    return listener


class Inbox:
    """A receiver for those who rather pull: while too many frames wait here, reading pauses."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._connection: Connection | None = None
        self._arrived = asyncio.Event()

    def opened(self, connection: Connection) -> None:
        self._connection = connection

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        connection.hold(sum([len(frame.payload) for frame in frames]))
        self._frames += frames
        self._arrived.set()

    def drained(self, connection: Connection) -> None:
        """Those who send wait with `send_when_writable`."""

    def lost(self, connection: Connection, failure: TransportFailure | None) -> None:
        self._arrived.set()

    async def next(self) -> Frame:
        """The next frame; when there is none any more, what ended the connection."""
        while not self._frames:
            connection = self._connection
            if connection is not None and connection.state is State.CLOSED:
                raise connection.failure or Unreachable("the connection was closed here")
            self._arrived.clear()
            await self._arrived.wait()
        assert self._connection is not None, "frames come after the greeting"
        frame = self._frames.popleft()
        self._connection.release(len(frame.payload))
        return frame
