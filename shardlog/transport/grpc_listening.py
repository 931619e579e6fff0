"""One gRPC service on a port of its own, with health and reflection beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from shardlog.transport.failures import Unreachable
from shardlog.transport.grpc_public_calls import PublicCalls

STEADY_WINDOW = ("grpc.http2.bdp_probe", 0)
"""By itself gRPC lets the window of a fast stream grow, however many streams there are."""


class GrpcListener:
    """`calls` are the service's handlers by name; at most `calls_max` run at once, if it is set."""

    def __init__(
        self,
        service: str,
        calls: dict[str, Any],
        options: Sequence[tuple[str, int]],
        credentials: Any = None,
        calls_max: int | None = None,
        interceptors: Sequence[Any] = (),
    ) -> None:
        self._service = service
        self._calls = calls
        self._options = options
        self._credentials = credentials
        self._calls_max = calls_max
        self._interceptors = interceptors
        self._public = PublicCalls()
        self._health = self._public.health
        self._grpc: Any = None

    async def start(self, host: str, port: int) -> int:
        """Returns the port, which the system chooses if it is 0."""
        service, address = self._service, f"{host}:{port}"
        self._grpc = made = grpc.aio.server(
            options=[*self._options, STEADY_WINDOW],
            maximum_concurrent_rpcs=self._calls_max,
            interceptors=self._interceptors,
        )
        handler = grpc.method_handlers_generic_handler(service, self._calls)
        made.add_generic_rpc_handlers((handler, self._public.health_handler()))
        shown = (service, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            self._public.reflection_of(shown), made
        )
        try:
            if self._credentials is None:
                bound: int = made.add_insecure_port(address)
            else:
                bound = made.add_secure_port(address, self._credentials)
        except RuntimeError as failure:
            raise Unreachable(f"{address}: {failure}") from failure
        await made.start()
        await self.set_serving(True)
        return bound

    async def set_serving(self, serving: bool) -> None:
        """What the health service says, of the node and of the service."""
        states = health_pb2.HealthCheckResponse
        state = states.SERVING if serving else states.NOT_SERVING
        for name in ("", self._service):
            await self._health.set(name, state)

    async def stop(self, grace_ms: int) -> None:
        """Take no more calls, and give those under way some time."""
        if self._grpc is not None:
            await self._health.enter_graceful_shutdown()
            await self._grpc.stop(grace_ms / 1000)
