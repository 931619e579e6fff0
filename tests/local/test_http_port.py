"""Connections of the HTTP sides on which nothing sensible comes."""

import asyncio
import logging

import pytest
from aiohttp import web

from shardlog.process.http_port import runner_of


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_S29_the_head_of_a_request_is_not_waited_for(sent: bytes):
    async def story() -> None:
        runner = runner_of(web.Application(), idle_s=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            reader, writer = await asyncio.open_connection(*runner.addresses[0])
            writer.write(sent)
            assert await reader.read() == b""
            writer.close()
        finally:
            await runner.cleanup()

    asyncio.run(story())


def test_S29_what_is_no_request_is_not_logged(caplog: pytest.LogCaptureFixture):
    async def story() -> None:
        runner = runner_of(web.Application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            for garbage in (b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n"):
                reader, writer = await asyncio.open_connection(*runner.addresses[0])
                writer.write(garbage)
                assert b" 400 " in await reader.read()
                writer.close()
        finally:
            await runner.cleanup()

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    assert not caplog.records
