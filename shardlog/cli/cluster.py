"""Finding the cluster, and asking its coordinator over HTTP.

`--cluster`, else SHARDLOG_CLUSTER, else the cluster on this machine.  The standard library's HTTP
is enough for one request, and is there in a hundredth of the time that aiohttp takes to import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import rich_click as click

from shardlog.cli.failures import BadUsage, ClusterRefused, ClusterUnavailable
from shardlog.where import CLUSTER_VARIABLE, hint

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])
Json = Any

REQUEST_TIMEOUT_S = 15.0
COMPLETION_TIMEOUT_S = 0.5


class Cluster:
    """The coordinator at `url`."""

    def __init__(self, url: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadUsage(f"{url}: the address of a coordinator begins with http://")
        self._address = parts.netloc
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection

    def get(self, *path: str) -> Json:
        return self._ask("GET", path)

    def post(self, *path: str, body: Json) -> Json:
        return self._ask("POST", path, body)

    def put(self, *path: str, body: Json) -> Json:
        return self._ask("PUT", path, body)

    def delete(self, *path: str) -> Json:
        return self._ask("DELETE", path)

    def shard(self, name: str) -> Json:
        return self.get("shards", name)

    def _ask(self, method: str, path: tuple[str, ...], body: Json = None) -> Json:
        where = "/v1/" + "/".join(quote(part, safe="") for part in path)
        data = None if body is None else json.dumps(body)
        connection = self._kind(self._address, timeout=self.timeout_s)
        try:
            connection.request(method, where, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, HTTPException) as failure:
            why = getattr(failure, "strerror", None) or str(failure) or type(failure).__name__
            told = f"no answer from the coordinator at {self.url}: {why}"
            raise ClusterUnavailable(told + hint(self.url)) from failure
        finally:
            connection.close()
        return self._understood(status, text)

    def _understood(self, status: int, text: bytes) -> Json:
        try:
            found = json.loads(text)
            error, kind = (found["error"], found["kind"]) if status >= 400 else ("", "")
        except (ValueError, KeyError, TypeError) as failure:
            why = f"{self.url} is not a coordinator: status {status}"
            raise ClusterUnavailable(why) from failure
        if kind == "BadRequest":
            raise BadUsage(error)
        if status >= 500:
            raise ClusterUnavailable(error)
        if status >= 400:
            raise ClusterRefused(error, kind)
        return found


def cluster_options(command: F) -> F:
    """Gives a command the argument `cluster`."""
    return click.option(
        "--cluster",
        metavar="URL",
        envvar=CLUSTER_VARIABLE,
        callback=_found,
        help=f"The coordinator's address.  [env: {CLUSTER_VARIABLE}; default: the cluster on this "
        "machine, see `shardlog local`]",
    )(command)


def _found(ctx: click.Context, parameter: click.Parameter, url: str | None) -> Cluster | None:
    """Runs also while a shell completes; nothing may fail then."""
    return None if ctx.resilient_parsing else find(url)


def find(url: str | None, timeout_s: float = REQUEST_TIMEOUT_S) -> Cluster:
    return Cluster(cluster_url(url), timeout_s)


def cluster_url(url: str | None) -> str:
    """What was given, or the address of the cluster on this machine."""
    if url:
        return url
    from shardlog.local.cluster_file import load
    from shardlog.local.failures import LocalFailure
    from shardlog.local.layout import Layout

    try:
        return load(Layout.of(None)).url
    except LocalFailure as failure:
        raise ClusterUnavailable(str(failure)) from failure


# --- completion ----------------------------------------------------------------------------------


def complete_shard(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completed(ctx, "shards", incomplete)


def complete_node(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completed(ctx, "nodes", incomplete)


def _completed(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        url = os.environ.get(CLUSTER_VARIABLE)
        listed = find(url, COMPLETION_TIMEOUT_S).get(kind)[kind]
    except click.ClickException:
        return []
    return [CompletionItem(each["name"]) for each in listed if each["name"].startswith(incomplete)]
