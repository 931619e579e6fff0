"""The public service: Append and Read for clients in any language, over gRPC.

It listens on a port of its own, since whoever may append must not therefore be able to reach the
control plane.  It is a thin adapter: a stream is a client of the data plane within the process
(`log_port`), and everything that is decided is decided there or by the replica.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc

from shardlog.transport.control import ControlLimits, ControlTls
from shardlog.transport.crowd import Crowd, Crowded
from shardlog.transport.grpc_listening import GrpcListener
from shardlog_node.log_appending import append
from shardlog_node.log_reading import read
from shardlog_node.log_stream import Desk, Gone, Idle, LogLimits, Waiting, Wire
from shardlog_node.log_wire import SERVICE

if TYPE_CHECKING:
    from shardlog_node.data_plane import DataPlane

AROUND_BYTES = 1 << 20
"""What a request may take beyond the body that its records make."""
NODE = "{node}"
"""Stands for a node's name in the pattern of addresses."""


class LogService:
    """`addresses` is how to find this service of any node, with `{node}` for its name."""

    def __init__(
        self,
        plane: DataPlane,
        tls: ControlTls | None = None,
        addresses: str | None = None,
        limits: LogLimits | None = None,
    ) -> None:
        self._limits = limits or LogLimits()
        pattern = addresses or ""
        self._desk = Desk(plane, self._limits, lambda node: pattern.replace(NODE, node))
        # Records one by one take more room than in a body.
        entry_bytes = plane.limits.entry_bytes_max
        message_bytes = entry_bytes + min(entry_bytes, AROUND_BYTES)
        usual = ControlLimits(message_bytes_max=message_bytes)
        window = ("grpc.http2.lookahead_bytes", self._limits.window_bytes)
        # One long record of a compressed entry is one answer.
        answer_bytes = self._limits.plain_bytes_max + AROUND_BYTES
        options = dict(usual.options()) | {"grpc.max_send_message_length": answer_bytes}
        options |= dict([window])
        calls = {
            "Append": grpc.stream_stream_rpc_method_handler(self._append),
            # On the wire this is one request and many answers: here the request is waited for.
            "Read": grpc.stream_stream_rpc_method_handler(self._read),
        }
        credentials = tls.of_node() if tls is not None else None
        # Not gRPC's own bound, which health calls count against too.
        self._waiting = Waiting(self._limits)
        self._crowd = Crowd(self._limits.streams_max, self._limits.streams_per_peer_max)
        self._listener = GrpcListener(SERVICE, calls, list(options.items()), credentials)

    @property
    def streams(self) -> int:
        """How many are open."""
        return self._crowd.streams

    async def start(self, host: str, port: int) -> int:
        """Returns the port, which the system chooses if it is 0."""
        return await self._listener.start(host, port)

    async def set_serving(self, serving: bool) -> None:
        await self._listener.set_serving(serving)

    async def stop(self, grace_ms: int) -> None:
        await self._listener.stop(grace_ms)
        self._desk.close()

    async def _append(self, _: object, context: Any) -> None:
        await self._serve(append, context)

    async def _read(self, _: object, context: Any) -> None:
        await self._serve(read, context)

    async def _serve(self, stream: Callable[[Desk, Wire], Awaitable[None]], context: Any) -> None:
        wire = Wire(context, self._limits.stall_ms, self._waiting)
        try:
            with self._crowd.one_more(context.peer()):
                await stream(self._desk, wire)
        except Gone:
            pass
        except Idle as idle:
            await wire.end(str(idle))
        except Crowded as crowded:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(crowded))
        finally:
            wire.close()
