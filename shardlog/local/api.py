"""The directory and the commands of a cluster over HTTP: a thin layer over `Administration`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from shardlog.coordinator.directory_json import Json, reports_json, shard_json
from shardlog.local import api_guard, api_json
from shardlog.local.administration import (
    Administration,
    AdministrationFailure,
    BadRequest,
    NoSuchShard,
    NotNow,
    ShardExists,
)
from shardlog.local.api_guard import ForeignRequest, NotJson
from shardlog.local.api_json import Body
from shardlog.local.nodes import Nodes
from shardlog.metadata.failures import Unavailable
from shardlog.protocol.coordination import TrimShard
from shardlog.protocol.shard import Shard

REQUEST_BYTES_MAX = 64 << 10
BODY_S = 10.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STATUS: dict[type[AdministrationFailure], tuple[int, str]] = {
    BadRequest: (400, "BadRequest"),
    NoSuchShard: (404, "NoSuchShard"),
    ShardExists: (409, "ShardExists"),
    NotNow: (409, "Rejected"),
    ForeignRequest: (403, "Forbidden"),
    NotJson: (415, "BadRequest"),
}


def application(
    administration: Administration, nodes: Nodes, log: Callable[[str], None]
) -> web.Application:
    """`log` is told of requests that are turned away, and of records that are to be dropped."""
    middlewares = [_errors, api_guard.of_browsers(log)]
    app = web.Application(middlewares=middlewares, client_max_size=REQUEST_BYTES_MAX)
    api = Api(administration, nodes, log)
    app.add_routes(
        [
            web.get("/v1/shards", api.list),
            web.post("/v1/shards", api.create),
            web.get("/v1/shards/{name}", api.get),
            web.delete("/v1/shards/{name}", api.delete),
            web.get("/v1/shards/{name}/status", api.status),
            web.put("/v1/shards/{name}/replicas", api.scale),
            web.put("/v1/shards/{name}/retention", api.retain),
            web.post("/v1/shards/{name}/operations", api.operate),
            web.get("/v1/nodes", api.nodes),
        ]
    )
    return app


class Api:
    def __init__(
        self, administration: Administration, nodes: Nodes, log: Callable[[str], None]
    ) -> None:
        self._administration = administration
        self._nodes = nodes
        self._log = log

    async def list(self, request: web.Request) -> web.Response:
        shards = self._administration.host.shards
        return web.json_response({"shards": [self._plain(shards[name]) for name in sorted(shards)]})

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self._plain(self._shard(request)))

    async def status(self, request: web.Request) -> web.Response:
        shard = self._shard(request)
        reports = await self._administration.reports(shard)
        told = {"reports": reports_json(shard, reports)}
        return web.json_response(self._plain(shard) | told)

    async def create(self, request: web.Request) -> web.Response:
        body = await _body(request)
        name, replicas = body.text("name"), body.number("replicas", 3)
        quorum, nodes, upkeep = body.quorum("quorum"), body.texts("nodes"), api_json.upkeep(body)
        body.require_no_more()
        shard = await self._administration.create(name, replicas, quorum, nodes, upkeep)
        return web.json_response(self._plain(shard), status=201)

    async def scale(self, request: web.Request) -> web.Response:
        body = await _body(request)
        replicas = body.number("replicas")
        body.require_no_more()
        shard = await self._administration.scale(request.match_info["name"], replicas)
        return web.json_response(self._plain(shard), status=202)

    async def retain(self, request: web.Request) -> web.Response:
        body = await _body(request)
        bounds = api_json.bounds(body)
        body.require_no_more()
        shard = await self._administration.retain(request.match_info["name"], *bounds)
        return web.json_response(self._plain(shard), status=202)

    async def operate(self, request: web.Request) -> web.Response:
        command = api_json.operation(await _body(request))
        shard = await self._administration.operate(request.match_info["name"], command)
        if isinstance(command, TrimShard):
            self._log(f"{shard.name}: records below offset {command.first} are to be dropped")
        return web.json_response(self._plain(shard), status=202)

    async def delete(self, request: web.Request) -> web.Response:
        shard = await self._administration.delete(request.match_info["name"])
        return web.json_response(self._plain(shard), status=202)

    async def nodes(self, request: web.Request) -> web.Response:
        listed = [
            {
                "name": place.name,
                "data": place.data,
                "control": place.control,
                "http": place.http,
                "alive": place.name in self._nodes.alive,
            }
            for place in self._nodes.places.values()
        ]
        return web.json_response({"nodes": listed})

    def _shard(self, request: web.Request) -> Shard:
        return self._administration.shard(request.match_info["name"])

    def _plain(self, shard: Shard) -> Json:
        asked = self._administration
        wanted, trouble = asked.replicas_wanted(shard), asked.trouble(shard)
        host = self._administration.host
        waiting, at_stake = host.waiting(shard.name), host.at_stake(shard.name)
        address = self._nodes.data_address
        return shard_json(shard, wanted, trouble, address, waiting, at_stake)


async def _body(request: web.Request) -> Body:
    try:
        async with asyncio.timeout(BODY_S):
            text = await request.text()
        return Body(json.loads(text))
    except TimeoutError as late:
        raise BadRequest(f"the body did not come in {BODY_S:.0f} s") from late
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is no JSON") from error


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure is one line of JSON."""
    try:
        return await handler(request)
    except AdministrationFailure as failure:
        status, kind = STATUS[type(failure)]
        return _error(status, str(failure), kind)
    except Unavailable as failure:
        return _error(503, f"the metadata store does not answer: {failure}", "Unavailable")
    except web.HTTPException as failure:
        return _error(failure.status, f"{request.path}: {failure.reason}", "BadRequest")


def _error(status: int, why: str, kind: str) -> web.Response:
    return web.json_response({"error": why, "kind": kind}, status=status)
