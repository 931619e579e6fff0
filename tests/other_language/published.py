"""Stubs made from the published .proto alone, and a process that has nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shardlog.transport.proto.regenerate import SOURCES

STRANGER = Path(__file__).with_name("stranger.py")
PATIENCE_S = 90


def make_stubs(directory: Path) -> None:
    """With protoc, from a copy of one file."""
    directory.mkdir()
    shutil.copy(SOURCES / "shardlog/v1/log.proto", directory)
    made = ("--python_out=.", "--grpc_python_out=.", "log.proto")
    subprocess.run(
        (sys.executable, "-m", "grpc_tools.protoc", "-I.", *made), cwd=directory, check=True
    )


class Stranger:
    """The process; what it is told to do it does in order."""

    def __init__(self, stubs: Path) -> None:
        self.process = subprocess.Popen(
            (sys.executable, "-P", str(STRANGER), str(stubs)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},
        )
        self._watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        self._watchdog.start()
        self._named = 0

    def end(self) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    def _told(self, do: str, arguments: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"do": do, **arguments}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, "the stranger is gone"
        return json.loads(line)

    async def do(self, do: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self._told, do, arguments)

    def name(self) -> str:
        self._named += 1
        return f"stream {self._named}"

    async def open(self, address: str, shard: str, session: int = 0, **tls: Any) -> Appending:
        """An Append stream; its first answer is in `first`."""
        stream = self.name()
        await self.do("append", stream=stream, address=address, **tls)
        request = {"version": 1, "shard": shard, "session": session}
        await self.do("send", stream=stream, request=request)
        return Appending(self, stream, await self.do("next", stream=stream))

    async def read(self, address: str, *, tls: Any = None, idle: bool = False, **asked: Any) -> str:
        stream = self.name()
        request = {"version": 1, **asked}
        await self.do("read", stream=stream, address=address, request=request, tls=tls, idle=idle)
        return stream

    async def next(self, stream: str) -> Any:
        return await self.do("next", stream=stream)

    async def records(self, address: str, shard: str, **asked: Any) -> list[dict[str, Any]]:
        """All of a stream that ends as it should."""
        stream = await self.read(address, shard=shard, **asked)
        found: list[dict[str, Any]] = []
        while "end" not in (told := await self.next(stream)):
            found += told["answer"]["records"]["records"]
        assert told == {"end": "OK"}
        return found


class Appending:
    """An Append stream of the stranger's."""

    def __init__(self, stranger: Stranger, stream: str, first: Any) -> None:
        self.stranger = stranger
        self.stream = stream
        self.first = first
        self.session = int(first.get("answer", {}).get("session", 0))

    async def send(self, request: int, *values: bytes) -> None:
        records = [{"value": base64.b64encode(value).decode()} for value in values]
        asked = {"request": request, "records": {"records": records}}
        await self.stranger.do("send", stream=self.stream, request=asked)

    async def next(self) -> Any:
        return await self.stranger.next(self.stream)

    async def append(self, request: int, *values: bytes) -> Any:
        await self.send(request, *values)
        return await self.next()


@contextmanager
def stranger(directory: Path) -> Iterator[Stranger]:
    make_stubs(directory)
    running = Stranger(directory)
    try:
        yield running
    finally:
        running.end()


def value_of(record: dict[str, Any]) -> bytes:
    return base64.b64decode(record["value"])


def example(document: str) -> str:
    """The program in a document."""
    _, _, rest = document.partition("\n```python\n")
    return rest.partition("\n```\n")[0] + "\n"
