"""Calls of the API: each way to fail is a type, and a token that is not known is read again."""

from __future__ import annotations

import asyncio

import kopf
import pytest
from aiohttp import web

from kube_operator.emulator import Api
from shardlog_operator.kube import (
    ApiFailure,
    ApiUnavailable,
    Conflict,
    Forbidden,
    Kube,
    NotFound,
    Refused,
    wait_for_kinds,
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Refused), (401, ApiUnavailable), (403, Forbidden), (404, NotFound), (409, Conflict),
        (410, NotFound), (422, Refused), (429, ApiUnavailable), (500, ApiUnavailable),
        (503, ApiUnavailable),
    ],
)  # fmt: skip
def test_every_status_is_a_type(status: int, kind: type[ApiFailure]):
    async def story() -> None:
        async def serve(request: web.Request) -> web.Response:
            return web.json_response({"message": "a line for a person"}, status=status)

        async with serving(serve) as url:
            kube = Kube("logs", lambda: kopf.ConnectionInfo(server=url))
            try:
                with pytest.raises(kind) as caught:
                    await kube.get("/x")
                assert str(caught.value) == "GET /x: a line for a person"
                assert (kube.failure is not None) == (kind is ApiUnavailable)
            finally:
                await kube.close()

    asyncio.run(story())


@pytest.mark.parametrize(("cause", "is_so"), [("NamespaceTerminating", True), ("Other", False)])
def test_a_namespace_that_goes_is_told_apart(cause: str, is_so: bool):
    """Nothing can be made in it any more, and nobody should wait for that."""

    async def story() -> None:
        async def serve(request: web.Request) -> web.Response:
            told = {"message": "forbidden", "details": {"causes": [{"reason": cause}]}}
            return web.json_response(told, status=403)

        async with serving(serve) as url:
            kube = Kube("logs", lambda: kopf.ConnectionInfo(server=url))
            try:
                with pytest.raises(Forbidden) as caught:
                    await kube.create(kube.job(), {})
                assert caught.value.is_terminating is is_so
            finally:
                await kube.close()

    asyncio.run(story())


class serving:  # noqa: N801 - reads as a phrase
    def __init__(self, handler) -> None:
        self.handler = handler

    async def __aenter__(self) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handler)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()


def test_garbage_and_nobody_are_no_answer():
    async def story() -> None:
        async def serve(request: web.Request) -> web.Response:
            return web.Response(text="<html>")

        async with serving(serve) as url:
            kube = Kube("logs", lambda: kopf.ConnectionInfo(server=url))
            with pytest.raises(ApiUnavailable):
                await kube.get("/x")
        with pytest.raises(ApiUnavailable):
            await kube.get("/x")
        await kube.close()

    asyncio.run(story())


def test_a_token_that_is_not_known_any_more_is_read_again():
    async def story() -> None:
        tokens = iter(("old", "new"))

        async def serve(request: web.Request) -> web.Response:
            known = request.headers["Authorization"] == "Bearer new"
            return web.json_response({}, status=200 if known else 401)

        async with serving(serve) as url:
            kube = Kube("logs", lambda: kopf.ConnectionInfo(server=url, token=next(tokens)))
            with pytest.raises(ApiUnavailable):
                await kube.get("/x")
            await kube.get("/x")
            assert kube.failure is None
            await kube.close()

    asyncio.run(story())


def test_kinds_that_are_not_installed_are_waited_for():
    async def story() -> None:
        told: list[str] = []
        async with Api().running() as api:
            api.unknown.add("/apis/shardlog.dev/v1alpha1")
            kube = Kube("logs", api.connect)

            def tell(why: str) -> None:
                told.append(why)
                if len(told) == 2:
                    api.unknown.clear()

            async with asyncio.timeout(60):
                await wait_for_kinds(kube, 0.01, tell)
            await kube.close()
        assert len(told) == 2
        assert "are the CRDs installed?" in told[0]

    asyncio.run(story())


def test_names_are_quoted():
    kube = Kube("logs")
    assert kube.shard("a/b") == "/apis/shardlog.dev/v1alpha1/namespaces/logs/shards/a%2Fb"
    assert kube.pod("node-0", "status").endswith("/pods/node-0/status")
    assert kube.events() == "/api/v1/namespaces/logs/events"


def test_what_is_gone_is_deleted():
    async def story() -> None:
        async with Api().running() as api:
            kube = Kube("logs", api.connect)
            await kube.delete(kube.service("none"))
            await api.create("services", {"metadata": {"name": "orders"}})
            with pytest.raises(Conflict):
                await kube.delete(kube.service("orders"), uid="another")
            await kube.close()

    asyncio.run(story())
