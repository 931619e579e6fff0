"""The HTTP interface: what it says, and what it is told that makes no sense."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner

from local.nodes_in_process import administered, settled, until
from shardlog.cli.main import main
from shardlog.local.administration import Administration
from shardlog.local.api import REQUEST_BYTES_MAX, application
from shardlog.local.cluster_file import new_cluster, save
from shardlog.local.layout import Layout
from shardlog.local.nodes import Nodes
from shardlog.metadata.records import decode_shard, encode_shard, shard_key
from shardlog.protocol.contradiction import ADVICE

Http = TestClient[web.Request, web.Application]


@asynccontextmanager
async def served(
    directory: Path, log: list[str] | None = None
) -> AsyncIterator[tuple[Http, Administration]]:
    layout = Layout(directory)
    save(layout, new_cluster(3))
    logged: list[str] = [] if log is None else log
    async with administered(directory, "node-1 node-2 node-3") as (_, administration):
        app = application(administration, Nodes(layout), logged.append)
        async with TestClient(TestServer(app)) as http:
            yield http, administration


async def asked(http: Http, method: str, path: str, **how: Any) -> tuple[int, Any]:
    async with http.request(method, path, **how) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


def test_a_shard_as_clients_see_it(tmp_path: Path):
    async def story() -> None:
        async with served(tmp_path) as (http, administration):
            body = {"name": "orders", "replicas": 2, "quorum": {"replication": 2, "fencing": 1}}
            status, made = await asked(http, "POST", "/v1/shards", json=body)
            assert (status, made["status"]) == (201, "CREATING")
            await settled(administration, "orders", 2)
            _, nodes = await asked(http, "GET", "/v1/nodes")
            data = {node["name"]: node["data"] for node in nodes["nodes"]}
            status, found = await asked(http, "GET", "/v1/shards/orders")
            leader = found.pop("leader")
            assert leader in ("node-1", "node-2")
            assert found == {
                "name": "orders",
                "status": "STEADY",
                "epoch": 1,
                "ensemble": ["node-1", "node-2"],
                "replicas": 2,
                "quorum": {"replication": 2, "fencing": 1},
                "retention": {"bytes": None, "time_ms": None},
                "durability": "Sync",
                "addresses": {node: data[node] for node in ("node-1", "node-2")},
                "reconfiguration": None,
                "halted": None,
                "waiting": None,
                "losses": [],
            }
            _, listed = await asked(http, "GET", "/v1/shards")
            assert listed == {"shards": [found | {"leader": leader}]}
            _, told = await asked(http, "GET", "/v1/shards/orders/status")
            assert [each["lag"] for each in told["reports"] if each["node"] == leader] == [0]

    asyncio.run(story())


def test_for_how_long_and_how_safely_records_are_kept(tmp_path: Path):
    async def story() -> None:
        async with served(tmp_path) as (http, administration):
            body = {"name": "orders", "replicas": 2, "retention": {"bytes": 1 << 20},
                    "durability": "Relaxed"}  # fmt: skip
            _, made = await asked(http, "POST", "/v1/shards", json=body)
            assert made["retention"] == {"bytes": 1 << 20, "time_ms": None}
            assert made["durability"] == "Relaxed"
            await settled(administration, "orders", 2)
            path = "/v1/shards/orders/retention"
            status, found = await asked(http, "PUT", path, json={"time_ms": 60_000})
            assert status == 202
            assert found["retention"] == {"bytes": None, "time_ms": 60_000}
            assert found["durability"] == "Relaxed"

    asyncio.run(story())


def test_a_change_is_shown_with_the_address_of_the_new_node(tmp_path: Path):
    async def story() -> None:
        async with served(tmp_path) as (http, administration):
            await asked(http, "POST", "/v1/shards", json={"name": "orders", "replicas": 2})
            await settled(administration, "orders", 2)
            status, _ = await asked(http, "PUT", "/v1/shards/orders/replicas", json={"replicas": 3})
            assert status == 202
            found: Any = {"reconfiguration": None}
            while found["reconfiguration"] is None:
                _, found = await asked(http, "GET", "/v1/shards/orders")
            assert found["reconfiguration"]["operation"] == "expand"
            assert found["reconfiguration"]["new"] == "node-3"
            assert found["replicas"] == 3
            assert "node-3" in found["addresses"]
            await settled(administration, "orders", 3)

    asyncio.run(story())


BAD = [
    ("POST", "/v1/shards", b"{", 400, "BadRequest"),
    ("POST", "/v1/shards", b"", 400, "BadRequest"),
    ("POST", "/v1/shards", b"[]", 400, "BadRequest"),
    ("POST", "/v1/shards", b"[" * 30_000, 400, "BadRequest"),
    ("POST", "/v1/shards", b"\xff\xfe", 400, "BadRequest"),
    ("POST", "/v1/shards", b"{}", 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": 5}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "replicas": "3"}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "replicas": true}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "replica": 3}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "nodes": "node-1"}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "nodes": []}', 409, "Rejected"),
    ("POST", "/v1/shards", b'{"name": "a", "nodes": ["node-1", "node-1"]}', 409, "Rejected"),
    ("POST", "/v1/shards", b'{"name": "a", "quorum": {"fencing": 0}}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "quorum": {"other": 1}}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "durability": "None"}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "retention": {"bytes": 0}}', 400, "BadRequest"),
    ("POST", "/v1/shards", b'{"name": "a", "retention": {"days": 1}}', 400, "BadRequest"),
    ("PUT", "/v1/shards/none/retention", b'{"bytes": 5}', 404, "NoSuchShard"),
    ("POST", "/v1/shards", b"x" * (REQUEST_BYTES_MAX + 1), 413, "BadRequest"),
    ("POST", "/v1/shards/a/operations", b'{"operation": "explode"}', 400, "BadRequest"),
    ("POST", "/v1/shards/a/operations", b'{"operation": "promote"}', 400, "BadRequest"),
    ("POST", "/v1/shards/a/operations", b'{"operation": "abort"}', 404, "NoSuchShard"),
    ("PUT", "/v1/shards/a/replicas", b'{"replicas": 3}', 404, "NoSuchShard"),
    ("DELETE", "/v1/shards/a", b"", 404, "NoSuchShard"),
    ("GET", "/v1/shards/a/status", b"", 404, "NoSuchShard"),
    ("GET", "/v1/shards/%2e%2e%2fa", b"", 404, "NoSuchShard"),
    ("GET", "/v2/shards", b"", 404, "BadRequest"),
    ("POST", "/v1/shards/a/operations", b'{"operation": "trim", "first": -1}', 400, "BadRequest"),
    ("PATCH", "/v1/shards", b"", 405, "BadRequest"),
]
JSON = {"Content-Type": "application/json"}


def test_what_makes_no_sense_is_one_line_of_json(tmp_path: Path):
    async def story() -> None:
        async with served(tmp_path) as (http, administration):
            for method, path, body, status, kind in BAD:
                found, told = await asked(http, method, path, data=body, headers=JSON)
                assert (found, told["kind"]) == (status, kind), (method, path, body[:40], told)
                assert told["error"]
                assert "\n" not in told["error"]
            assert administration.host.shards == {}

    asyncio.run(story())


@pytest.mark.parametrize("value", [b"", b"{", b'{"format": 2, "replicas": 3}', b'{"format": 1}'])
def test_a_wanted_number_that_cannot_be_read_is_left_alone(tmp_path: Path, value: bytes):
    async def story() -> None:
        async with served(tmp_path) as (http, administration):
            await asked(http, "POST", "/v1/shards", json={"name": "orders", "replicas": 2})
            await settled(administration, "orders", 2)
            await administration.host.store.compare_and_swap("wanted/orders", 0, value)
            await asked(http, "PUT", "/v1/shards/orders/replicas", json={"replicas": 3})
            await settled(administration, "orders", 3)

    asyncio.run(story())


EVIL = "https://evil.example"
NO_CORS = {"Content-Type": "text/plain;charset=UTF-8", "Origin": EVIL, "Sec-Fetch-Mode": "no-cors",
           "Sec-Fetch-Site": "cross-site"}  # fmt: skip
FOREIGN = {
    "a page's simple POST": (NO_CORS, 403),
    "a page of an old browser": ({"Content-Type": "text/plain", "Origin": EVIL}, 403),
    "a sandboxed page": ({**JSON, "Origin": "null"}, 403),
    "a page on another port": ({**JSON, "Origin": "http://127.0.0.1:1"}, 403),
    "a page on another port, told apart by site": ({**JSON, "Sec-Fetch-Site": "same-site"}, 403),
    "a name bound to this machine": ({**JSON, "Host": "evil.example:7300"}, 403),
    "a name that begins like ours": ({**JSON, "Host": "localhost.evil.example"}, 403),
    "an address bound to this machine": ({**JSON, "Host": "10.0.0.1"}, 403),
    "no host": ({**JSON, "Host": ""}, 403),
    "a host that is none": ({**JSON, "Host": "[::1"}, 403),
    "a form": ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "text": ({"Content-Type": "text/plain"}, 415),
}
CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/v1/shards", {"name": "theirs"}),
    ("POST", "/v1/shards/orders/operations", {"operation": "trim", "first": 3}),
    ("PUT", "/v1/shards/orders/retention", {"bytes": 1}),
    ("DELETE", "/v1/shards/orders", {}),
)


def test_S10_a_page_of_another_site_changes_nothing(tmp_path: Path):
    async def story() -> None:
        log: list[str] = []
        async with served(tmp_path, log) as (http, administration):
            await asked(http, "POST", "/v1/shards", json={"name": "orders", "replicas": 2})
            before = await settled(administration, "orders", 2)
            for what, (headers, wanted) in FOREIGN.items():
                for method, path, body in CHANGES:
                    text = json.dumps(body)
                    status, told = await asked(http, method, path, data=text, headers=headers)
                    assert (status, told["kind"]) == (
                        wanted, "Forbidden" if wanted == 403 else "BadRequest"
                    ), (what, method, told)  # fmt: skip
                    assert "\n" not in told["error"]
            assert administration.host.shards == {"orders": before}
            assert len([line for line in log if "turned away" in line]) >= 1
            for headers, wanted in FOREIGN.values():
                status, _ = await asked(http, "GET", "/v1/shards", headers=headers)
                assert status == (403 if wanted == 403 else 200)

    asyncio.run(story())


def test_S10_names_of_this_machine_and_pages_of_its_own_are_served(tmp_path: Path):
    async def story() -> None:
        async with served(tmp_path) as (http, _):
            own = f"127.0.0.1:{http.port}"
            for headers in (
                {"Host": "localhost"},
                {"Host": "LOCALHOST:7300"},
                {"Host": "[::1]:7300"},
                {"Host": "127.0.0.9"},
                {"Host": own, "Origin": f"http://{own}", "Sec-Fetch-Site": "same-origin"},
                {"Sec-Fetch-Site": "none"},
            ):
                status, _ = await asked(http, "GET", "/v1/shards", headers=headers)
                assert status == 200, headers
            status, _ = await asked(http, "DELETE", "/v1/shards/none")
            assert status == 404

    asyncio.run(story())


def test_S10_a_trim_beyond_the_end_is_refused_and_one_within_is_logged(tmp_path: Path):
    async def story() -> None:
        log: list[str] = []
        async with served(tmp_path, log) as (http, administration):
            await asked(http, "POST", "/v1/shards", json={"name": "orders", "replicas": 2})
            await settled(administration, "orders", 2)
            path = "/v1/shards/orders/operations"
            status, told = await asked(
                http, "POST", path, json={"operation": "trim", "first": 1_000_000}
            )
            assert (status, told["kind"]) == (409, "Rejected")
            assert "1000000 is beyond that" in told["error"]
            assert not log
            status, _ = await asked(http, "POST", path, json={"operation": "trim", "first": 1})
            assert status == 202
            assert log == ["orders: records below offset 1 are to be dropped"]

    asyncio.run(story())


def test_rule_21_status_says_in_one_line_why_a_shard_is_halted_and_what_to_do(tmp_path: Path):
    async def story() -> None:
        async with served(tmp_path) as (http, administration):
            await asked(http, "POST", "/v1/shards", json={"name": "orders", "replicas": 1})
            await settled(administration, "orders", 1)
            store, key = administration.host.store, shard_key("orders")
            found = await store.get(key)
            assert found is not None
            why = f"b leads another ensemble; {ADVICE}"
            record = replace(decode_shard(key, found.value), halted=why)
            await store.compare_and_swap(key, found.version, encode_shard(record))
            await until(administration, "orders", lambda shard: shard.halted is not None)
            told = await shown("status", "orders", "--cluster", str(http.make_url("/")))
            assert f"  halted     {why}" in told.splitlines()
            told = await shown("status", "--cluster", str(http.make_url("/")))
            (line,) = [each for each in told.splitlines() if each.startswith("orders")]
            assert "HALTED" in line
            assert why in line

    asyncio.run(story())


async def shown(*command: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert result.exit_code == 0, result.output
    return result.output
