"""Who leads a shard and where nodes are: asked of a directory, or tried out.

A directory over HTTP knows the leader.  A list of addresses knows nothing, so every one of them is
tried until one leads.  Answers are hints: whoever is asked in error says so, and nothing rests on
them but time.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlsplit

from shardlog.client.failures import (
    Closed,
    DirectoryRejected,
    DirectoryUnavailable,
    InvalidArgument,
    NoSuchShard,
)
from shardlog.where import hint

if TYPE_CHECKING:
    import aiohttp


@dataclass(frozen=True, slots=True)
class Placement:
    """`addresses` are of nodes by name.  `knows_leader`: no leader means that there is none now."""

    leader: str | None
    addresses: Mapping[str, str]
    knows_leader: bool = True


class Directory(Protocol):
    """Asked whenever what is known has failed."""

    async def find(self, shard: str) -> Placement:
        """`DirectoryUnavailable` if there is no answer, `NoSuchShard` if that is the answer."""
        ...

    async def names(self) -> list[str]:
        """Of all shards that are there, in order."""
        ...

    async def close(self) -> None: ...


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, where an IPv6 host may stand in brackets."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InvalidArgument(f"{address!r} is not host:port")
    return host, int(port)


class AddressList:
    """`shardlog://host:port,host:port`: addresses to try.  They stand for the names too."""

    def __init__(self, addresses: list[str]) -> None:
        for address in addresses:
            split_address(address)
        self._placement = Placement(None, {each: each for each in addresses}, knows_leader=False)

    async def find(self, shard: str) -> Placement:
        return self._placement

    async def names(self) -> list[str]:
        raise InvalidArgument("addresses of nodes do not tell which shards there are: http://")

    async def close(self) -> None:
        """Nothing is open."""


class HttpDirectory:
    """`http://host:port`: the directory that a coordinator serves."""

    def __init__(self, url: str, timeout_ms: int, tls: ssl.SSLContext | None) -> None:
        self._url = url.rstrip("/")
        self._timeout_ms = timeout_ms
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def find(self, shard: str) -> Placement:
        status, answer = await self._get(f"/v1/shards/{quote(shard, safe='')}")
        if status == 404 and isinstance(answer, dict) and answer.get("kind") == "NoSuchShard":
            raise NoSuchShard(shard)
        if status >= 500:
            raise DirectoryUnavailable(f"the coordinator at {self._url} answers {status}")
        if status != 200:
            raise DirectoryRejected(f"{self._url} answers {status} when asked for {shard!r}")
        return placement_of(shard, answer)

    async def names(self) -> list[str]:
        status, answer = await self._get("/v1/shards")
        if status >= 500:
            raise DirectoryUnavailable(f"the coordinator at {self._url} answers {status}")
        try:
            return sorted(
                str(each["name"]) for each in answer["shards"] if each["status"] != "DELETING"
            )
        except (KeyError, TypeError) as failure:
            raise DirectoryRejected(
                f"{self._url} does not tell which shards there are"
            ) from failure

    async def _get(self, path: str) -> tuple[int, Any]:
        import aiohttp

        if self._closed:
            raise Closed("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession()
        timeout = aiohttp.ClientTimeout(total=self._timeout_ms / 1000)
        tls = self._tls if self._tls is not None else True
        try:
            async with self._session.get(self._url + path, timeout=timeout, ssl=tls) as response:
                is_json = response.content_type == "application/json"
                return response.status, await response.json() if is_json else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as failure:
            told = f"no answer from the coordinator at {self._url}: {self._why(failure)}"
            raise DirectoryUnavailable(told + hint(self._url)) from failure

    def _why(self, failure: Exception) -> str:
        """The reason alone: aiohttp tells host, port and the kind of TLS again."""
        if isinstance(failure, TimeoutError):
            return f"not within {self._timeout_ms} ms"
        reason = getattr(failure, "os_error", failure)
        errno = getattr(reason, "errno", None) or 0
        if errno > 0:
            return os.strerror(errno)
        return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
            await asyncio.sleep(0)


def placement_of(shard: str, answer: Any) -> Placement:
    """What the directory's JSON says; while there is an election nobody leads."""
    try:
        status, leader = answer["status"], answer["leader"]
        addresses = {str(node): str(each) for node, each in answer["addresses"].items()}
        for address in addresses.values():
            split_address(address)
    except (AttributeError, KeyError, TypeError, InvalidArgument) as failure:
        raise DirectoryRejected(f"what is said of {shard!r} is not understood") from failure
    if status == "DELETING":
        raise NoSuchShard(shard)
    return Placement(leader if status == "STEADY" else None, addresses)


def directory_of(url: str, timeout_ms: int, tls: ssl.SSLContext | None) -> Directory:
    """The directory that a URL names."""
    scheme, colon, rest = url.partition("://")
    if colon and scheme == "shardlog":
        return AddressList([each for each in rest.rstrip("/").split(",") if each] or [rest])
    if colon and scheme in ("http", "https") and urlsplit(url).hostname:
        return HttpDirectory(url, timeout_ms, tls if scheme == "https" else None)
    raise InvalidArgument(f"{url!r} is neither http://host:port nor shardlog://host:port,...")
