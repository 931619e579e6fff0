"""An order service that keeps nothing but a log: every change is a record of the shard `orders`.

    POST /orders                {"item": "tea", "quantity": 2}
    POST /orders/ID/cancel
    GET  /orders/ID?after=OFFSET

Any number of these processes may run.  Each tails the shard and holds the state of all orders in
memory.  A change is answered with the offset of its record; whoever asks for an order `after` that
offset sees the change, whichever process is asked.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web

from shardlog.client import Client, Producer

SHARD = "orders"
PORT = 8080

Order = dict[str, object]


class Orders:
    """The state of all orders up to `applied`, the offset of the last record that it includes."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.by_id: dict[str, Order] = {}
        self.applied = -1
        self._changed = asyncio.Condition()

    async def follow(self) -> None:
        async for record in self.client.tail(SHARD):
            self._apply(json.loads(record.value))
            async with self._changed:
                self.applied = record.offset
                self._changed.notify_all()

    def _apply(self, event: Order) -> None:
        order = str(event["id"])
        if event["event"] == "placed":
            placed = {"item": event["item"], "quantity": event["quantity"]}
            self.by_id[order] = {"id": order, "state": "placed", **placed}
        elif order in self.by_id:
            self.by_id[order]["state"] = "cancelled"

    async def until(self, offset: int) -> None:
        """Wait until the record at this offset is included."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.applied >= offset)


orders_key = web.AppKey("orders", Orders)
producer_key = web.AppKey("producer", Producer)
following_key = web.AppKey("following", asyncio.Task[None])


async def place(request: web.Request) -> web.Response:
    try:
        asked = await request.json()
        wanted = {"item": str(asked["item"]), "quantity": int(asked["quantity"])}
    except (KeyError, TypeError, ValueError):
        raise web.HTTPBadRequest(text="an order is an item and a quantity\n") from None
    order = uuid.uuid4().hex
    event = {"event": "placed", "id": order, **wanted}
    return await _appended(request, order, event, status=201)


async def cancel(request: web.Request) -> web.Response:
    order = request.match_info["order"]
    return await _appended(request, order, {"event": "cancelled", "id": order}, status=200)


async def _appended(request: web.Request, order: str, event: Order, status: int) -> web.Response:
    """Once this is answered the event is on the disks of a quorum."""
    record = json.dumps(event).encode()
    offset = await request.app[producer_key].append(record, key=order.encode())
    return web.json_response({"id": order, "offset": offset}, status=status)


async def show(request: web.Request) -> web.Response:
    """`after` is an offset that was answered before."""
    orders = request.app[orders_key]
    await orders.until(int(request.query.get("after", -1)))
    found = orders.by_id.get(request.match_info["order"])
    if found is None:
        raise web.HTTPNotFound(text="no such order\n")
    return web.json_response(found)


async def ready(request: web.Request) -> web.Response:
    if request.app[following_key].done():
        raise web.HTTPServiceUnavailable(text="the shard is not followed any more\n")
    return web.Response(text="ready\n")


async def connected(app: web.Application) -> AsyncIterator[None]:
    async with Client() as client, client.producer(SHARD) as producer:
        app[orders_key] = Orders(client)
        app[producer_key] = producer
        app[following_key] = asyncio.create_task(app[orders_key].follow())
        yield
        app[following_key].cancel()
        with suppress(asyncio.CancelledError):
            await app[following_key]


def application() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(connected)
    app.add_routes(
        [
            web.post("/orders", place),
            web.post("/orders/{order}/cancel", cancel),
            web.get("/orders/{order}", show),
            web.get("/ready", ready),
        ]
    )
    return app


if __name__ == "__main__":
    web.run_app(application(), port=PORT)
