"""Health and reflection, which anybody may ask for: bounded in number, in time and in memory.

gRPC reads a message whole before it shows it, and a port's longest message may be long.  So these
calls are taken as streams, whose message is read when there is room for it: what has not been asked
for stays in the window of the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection

from shardlog.transport.crowd import Crowd, Crowded

CALLS_MAX = 256
CALLS_PER_PEER_MAX = 64
"""Those of health and of reflection that are open, watches among them."""
READING_MAX = 8
"""Requests of each that are being read at once."""
REQUEST_MS = 1000
"""So long a request may take to come once it is read."""
REFLECTION_MS = 10_000
NAME_CHARS_MAX = 255


class PublicCalls:
    """Bounds all such calls of one port."""

    def __init__(self) -> None:
        self._crowd = Crowd(CALLS_MAX, CALLS_PER_PEER_MAX)
        self._reading = asyncio.Semaphore(READING_MAX)
        self.health = health.aio.HealthServicer()

    def health_handler(self) -> Any:
        calls = {"Check": self._check, "Watch": self._watch}
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(
                call,
                health_pb2.HealthCheckRequest.FromString,
                health_pb2.HealthCheckResponse.SerializeToString,
            )
            for name, call in calls.items()
        }
        return grpc.method_handlers_generic_handler(health.SERVICE_NAME, handlers)

    def reflection_of(self, services: Sequence[str]) -> Any:
        return _Reflection(services, self._crowd)

    async def _check(self, _: object, context: Any) -> None:
        try:
            with self._crowd.one_more(context.peer()):
                request = await self._request(context)
                await context.write(await self.health.Check(request, context))
        except Crowded as crowded:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(crowded))

    async def _watch(self, _: object, context: Any) -> None:
        try:
            with self._crowd.one_more(context.peer()):
                await self.health.Watch(await self._request(context), context)
        except Crowded as crowded:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(crowded))

    async def _request(self, context: Any) -> Any:
        """The one message of the call; ends the call if there is none, or none that can be."""
        request = grpc.aio.EOF
        async with self._reading:
            try:
                async with asyncio.timeout(REQUEST_MS / 1000):
                    request = await context.read()
            except TimeoutError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no request came")
        if request is grpc.aio.EOF or len(request.service) > NAME_CHARS_MAX:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no service is named so")
        return request


class _Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    def __init__(self, services: Sequence[str], crowd: Crowd) -> None:
        super().__init__(services)
        self._crowd = crowd
        self._reading = asyncio.Semaphore(READING_MAX)  # not that of health, which must not wait

    async def ServerReflectionInfo(  # noqa: N802 - gRPC's name
        self, requests: Any, context: Any
    ) -> AsyncIterator[Any]:
        try:
            with self._crowd.one_more(context.peer()):
                async with self._reading, asyncio.timeout(REFLECTION_MS / 1000):
                    async for answer in super().ServerReflectionInfo(requests, context):
                        yield answer
        except Crowded as crowded:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(crowded))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "it took too long")
