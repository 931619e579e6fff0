"""The public service: Append and Read for clients in any language, over gRPC.

It listens on a port of its own, since whoever may append must not therefore be able to reach the
control plane.  It is a thin adapter: a stream is a client of the data plane within the process
(`log_port`), and everything that is decided is decided there or by the replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shardlog.transport.control import ControlLimits, ControlTls
from shardlog.transport.failures import Unreachable
from shardlog_node.log_appending import append
from shardlog_node.log_reading import read
from shardlog_node.log_stream import Desk, LogLimits, Wire
from shardlog_node.log_wire import SERVICE

if TYPE_CHECKING:
    from shardlog_node.data_plane import DataPlane

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
        self._tls = tls
        self._limits = limits or LogLimits()
        pattern = addresses or ""
        self._desk = Desk(plane, self._limits, lambda node: pattern.replace(NODE, node))
        # Records one by one take more room than in a body, but never twice as much.
        usual = ControlLimits(message_bytes_max=2 * plane.limits.entry_bytes_max)
        # By itself gRPC lets the window of a fast stream grow, however many streams there are.
        window = ("grpc.http2.lookahead_bytes", self._limits.window_bytes)
        self._options = [*usual.options(), ("grpc.http2.bdp_probe", 0), window]
        self._health = health.aio.HealthServicer()
        self._grpc: Any = None

    async def start(self, host: str, port: int) -> int:
        """Returns the port, which the system chooses if it is 0."""
        self._grpc = grpc.aio.server(
            options=self._options, maximum_concurrent_rpcs=self._limits.streams_max
        )
        calls = {
            "Append": grpc.stream_stream_rpc_method_handler(self._append),
            "Read": grpc.unary_stream_rpc_method_handler(self._read),
        }
        self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        shown = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(shown, self._grpc)
        address = f"{host}:{port}"
        try:
            if self._tls is None:
                bound: int = self._grpc.add_insecure_port(address)
            else:
                bound = self._grpc.add_secure_port(address, self._tls.of_node())
        except RuntimeError as failure:
            raise Unreachable(f"{address}: {failure}") from failure
        await self._grpc.start()
        await self.set_serving(True)
        return bound

    async def set_serving(self, serving: bool) -> None:
        """What the health service says, of the node and of the service."""
        states = health_pb2.HealthCheckResponse
        state = states.SERVING if serving else states.NOT_SERVING
        for name in ("", SERVICE):
            await self._health.set(name, state)

    async def stop(self, grace_ms: int) -> None:
        """Take no more streams, and give those under way some time."""
        if self._grpc is not None:
            await self._health.enter_graceful_shutdown()
            await self._grpc.stop(grace_ms / 1000)
        self._desk.close()

    async def _append(self, _: object, context: Any) -> None:
        await append(self._desk, Wire(context))

    async def _read(self, data: bytes, context: Any) -> None:
        await read(self._desk, data, Wire(context))
