"""Directories, and what they are asked with."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from shardlog.client.directory import (
    AddressList,
    HttpDirectory,
    Placement,
    directory_of,
    placement_of,
    split_address,
)
from shardlog.client.failures import (
    Closed,
    DirectoryRejected,
    DirectoryUnavailable,
    InvalidArgument,
    NoSuchShard,
)

SAID = {
    "name": "orders",
    "status": "STEADY",
    "leader": "node-1",
    "addresses": {"node-1": "10.0.0.1:7001", "node-2": "10.0.0.2:7001"},
}


def test_addresses():
    assert split_address("localhost:80") == ("localhost", 80)
    assert split_address("[::1]:7000") == ("::1", 7000)
    for wrong in ("", "localhost", "localhost:", ":80", "localhost:http", "localhost:0", "h:65536"):
        with pytest.raises(InvalidArgument, match="is not host:port"):
            split_address(wrong)


def test_a_url_names_a_directory():
    assert isinstance(directory_of("http://localhost:80", 1, None), HttpDirectory)
    assert isinstance(directory_of("https://localhost", 1, None), HttpDirectory)
    found = directory_of("shardlog://a:1,b:2/", 1, None)
    assert isinstance(found, AddressList)
    placement = asyncio.run(found.find("any"))
    assert placement == Placement(None, {"a:1": "a:1", "b:2": "b:2"}, knows_leader=False)
    for wrong in ("", "localhost:80", "ftp://x:1", "http://", "shardlog://", "shardlog://a:1,b"):
        with pytest.raises(InvalidArgument):
            directory_of(wrong, 1, None)


def test_what_a_directory_says():
    assert placement_of("orders", SAID) == Placement("node-1", SAID["addresses"])  # type: ignore[arg-type]
    assert placement_of("orders", SAID | {"leader": None}).leader is None
    for status in ("ELECTION", "CREATING"):
        assert placement_of("orders", SAID | {"status": status}).leader is None
    with pytest.raises(NoSuchShard):
        placement_of("orders", SAID | {"status": "DELETING"})
    addresses: list[Any] = [[], {"a": "b"}, None]
    wrongs: list[Any] = [None, [], {}, "x", *[SAID | {"addresses": each} for each in addresses]]
    for wrong in wrongs:
        with pytest.raises(DirectoryRejected):
            placement_of("orders", wrong)


@asynccontextmanager
async def serving(status: int, said: Any) -> AsyncIterator[str]:
    async def tell(request: web.Request) -> web.Response:
        if isinstance(said, str):
            return web.Response(status=status, text=said)
        return web.json_response(said, status=status)

    app = web.Application()
    app.add_routes([web.get("/v1/shards/{name}", tell)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "said", "failure"),
    [
        (200, SAID, None),
        (404, {"error": "no", "kind": "NoSuchShard"}, NoSuchShard),
        (404, "not found", DirectoryRejected),
        (400, {"error": "no", "kind": "BadRequest"}, DirectoryRejected),
        (503, {"error": "no", "kind": "Unavailable"}, DirectoryUnavailable),
        (200, "a page", DirectoryRejected),
    ],
)
def test_answers_over_http(status: int, said: Any, failure: type[Exception] | None):
    async def whole() -> None:
        async with serving(status, said) as url:
            directory = HttpDirectory(url, 5_000, None)
            try:
                if failure is None:
                    assert (await directory.find("orders")).leader == "node-1"
                else:
                    with pytest.raises(failure):
                        await directory.find("a/b ?")
            finally:
                await directory.close()

    asyncio.run(whole())


def test_one_that_does_not_answer(unused_address: str):
    async def whole() -> None:
        directory = HttpDirectory(f"http://{unused_address}", 500, None)
        with pytest.raises(DirectoryUnavailable, match=unused_address):
            await directory.find("orders")
        await directory.close()
        await directory.close()
        with pytest.raises(Closed):
            await directory.find("orders")

    asyncio.run(whole())
