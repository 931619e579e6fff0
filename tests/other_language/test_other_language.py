"""Real nodes, driven by a process that has stubs of the published .proto and nothing of ours."""

import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme
from node.shell import ANY_PORT, Cluster, node, refused
from transport.documents import DOCS

from other_language.published import (
    Appending,
    Stranger,
    example,
    make_stubs,
    stranger,
    value_of,
)
from shardlog.transport.control import ControlTls

PUBLIC = ("--public-port", "0")


def story(tmp_path: Path, *names: str, arguments: tuple[str, ...] = ()):
    """Runs a coroutine function with node processes, the leader of `orders` and a stranger."""

    def run(told) -> None:
        async def whole() -> None:
            cluster = Cluster(tmp_path / "nodes", *names, arguments=(*PUBLIC, *arguments))
            cluster.directory.mkdir()
            async with cluster.running():
                leader = await cluster.create("orders")
                with stranger(tmp_path / "stubs") as client:
                    await told(cluster, leader, client)
                    assert await client.do("modules") == {"ours": []}

        asyncio.run(whole())

    return run


def public(cluster: Cluster, name: str) -> str:
    return cluster.nodes[name].ready["public"]


def test_append_read_and_follow(tmp_path):
    @story(tmp_path, "a", "b", "c")
    async def _(cluster: Cluster, leader: str, client: Stranger) -> None:
        address = public(cluster, leader)
        appending = await client.open(address, "orders")
        assert appending.first["answer"] == {"version": 1, "session": str(appending.session)}
        following = await client.read(address, shard="orders", follow=True)
        opened = 0  # where the session's own entry stands
        for request in range(1, 11):
            told = await appending.append(request, b"value %d" % request)
            opened = opened or int(told["answer"]["base_offset"]) - 1
            offset = opened + request
            assert told["answer"]["base_offset"] == str(offset)
            (found,) = (await client.next(following))["answer"]["records"]["records"]
            assert (value_of(found), found["offset"]) == (b"value %d" % request, str(offset))
        await client.do("cancel", stream=following)
        assert await client.next(following) == {"end": "CANCELLED"}
        await client.do("finish", stream=appending.stream)
        assert await appending.next() == {"end": "OK"}
        middle = str(opened + 5)
        found = await client.records(address, "orders", offset=middle)
        assert [value_of(each) for each in found] == [b"value %d" % n for n in range(5, 11)]


def test_a_retry_over_a_failover_is_appended_once(tmp_path):
    """The leader is killed with requests on their way; whatever became of them, once is all."""

    @story(tmp_path, "a", "b", "c")
    async def _(cluster: Cluster, leader: str, client: Stranger) -> None:
        appending = await client.open(public(cluster, leader), "orders")
        sent = [b"value %d" % request for request in range(1, 41)]
        for request in range(1, 21):
            assert "base_offset" in (await appending.append(request, sent[request - 1]))["answer"]
        for request in range(21, 41):
            await appending.send(request, sent[request - 1])
        cluster.nodes[leader].signal(signal.SIGKILL)
        answered = 20
        while "end" not in (told := await appending.next()):
            if "base_offset" in told["answer"]:
                answered = int(told["answer"]["request"])
        assert told == {"end": "UNAVAILABLE"}
        others = [name for name in cluster.names if name != leader]
        again = await resumed(client, cluster, others, appending.session, answered + 1, sent)
        assert again.session == appending.session
        elsewhere = public(cluster, await cluster.leader("orders", other_than=leader))
        found = await client.records(elsewhere, "orders")
        assert [value_of(each) for each in found] == sent


async def resumed(
    client: Stranger,
    cluster: Cluster,
    names: list[str],
    session: int,
    start: int,
    sent: list[bytes],
) -> Appending:
    """Send the requests from `start` on to whichever node takes them, as often as it takes."""
    while True:
        for name in names:
            stream = await client.open(public(cluster, name), "orders", session)
            while start <= len(sent):
                told = await stream.append(start, sent[start - 1])
                if "base_offset" not in told.get("answer", {}):
                    assert told["answer"]["failure"]["retriable"], told
                    break
                start += 1
            else:
                return stream
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_program_in_the_document_over_a_failover(tmp_path, number):
    """The leader is gone, or frozen: it goes on with the next, and every line is there once."""

    async def whole() -> None:
        cluster = Cluster(tmp_path / "nodes", "a", "b", "c", arguments=PUBLIC)
        cluster.directory.mkdir()
        stubs = tmp_path / "stubs"
        make_stubs(stubs)
        (stubs / "append.py").write_text(example((DOCS / "other-languages.md").read_text()))
        lines = [b"line %d" % number for number in range(60)]
        async with cluster.running():
            leader = await cluster.create("orders")
            process = await asyncio.create_subprocess_exec(
                sys.executable, "append.py", "orders", *[public(cluster, it) for it in "abc"],
                cwd=stubs, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            for at, line in enumerate(lines):
                process.stdin.write(line + b"\n")
                if at == 20:
                    cluster.nodes[leader].signal(number)
                assert (await process.stdout.readline()).strip().isdigit()
            process.stdin.close()
            assert await process.wait() == 0
            other = await cluster.leader("orders", other_than=leader)
            client = Stranger(stubs)
            try:
                found = await client.records(public(cluster, other), "orders")
            finally:
                client.end()
            assert [value_of(each) for each in found] == lines

    asyncio.run(whole())


def test_failures_are_answers(tmp_path):
    pattern = "{node}.nodes.example:7403"

    @story(tmp_path, "a", "b", "c", arguments=("--public-addresses", pattern))
    async def _(cluster: Cluster, leader: str, client: Stranger) -> None:
        other = next(name for name in cluster.names if name != leader)
        address = public(cluster, leader)
        while True:
            stream = await client.read(public(cluster, other), shard="orders")
            failure = (await client.next(stream))["answer"]["failure"]
            assert failure["code"] == "CODE_NOT_LEADER"
            if "leader_node" in failure:
                break
        assert (failure["leader_node"], failure["retriable"]) == (leader, True)
        assert failure["leader"] == f"{leader}.nodes.example:7403"

        async def code(**asked: Any) -> str:
            stream = await client.read(address, **{"shard": "orders", **asked})
            told = await client.next(stream)
            assert await client.next(stream) == {"end": "OK"}
            found: str = told["answer"]["failure"]["code"]
            return found

        assert await code(version=7) == "CODE_VERSION"
        assert await code(shard="missing") == "CODE_NO_SHARD"
        assert await code(shard="") == "CODE_INVALID"
        missing = await client.open(address, "missing")
        assert missing.first["answer"]["failure"]["code"] == "CODE_NO_SHARD"
        while True:
            unknown = await client.open(address, "orders", 999)
            failure = (await unknown.append(1, b"x"))["answer"]["failure"]
            if failure["code"] != "CODE_TRY_AGAIN":  # it has not heard its quorum lately
                break
        assert failure["code"] == "CODE_SESSION_UNKNOWN"
        appending = await client.open(address, "orders")
        told = await appending.append(2, b"x")
        assert told["answer"]["failure"]["code"] == "CODE_REQUEST_GAP"
        assert told["answer"]["failure"]["expected_request"] == "1"
        assert "base_offset" in (await appending.append(1, b"x"))["answer"]


def test_readers_that_do_not_read_cost_little(tmp_path):
    batches, readers = 640, 10

    @story(tmp_path, "a")
    async def _(cluster: Cluster, leader: str, client: Stranger) -> None:
        address = public(cluster, leader)
        appending = await client.open(address, "orders")
        for request in range(1, batches + 1):
            await appending.send(request, bytes(32 << 10), bytes(32 << 10))
            if request > 16:
                assert "base_offset" in (await appending.next())["answer"]
        for _ in range(16):
            assert "base_offset" in (await appending.next())["answer"]

        async def whole() -> None:
            stream = await client.read(address, shard="orders", encoded=True)
            assert await client.do("rest", stream=stream) == {"number": batches, "end": "OK"}

        await whole()
        process = psutil.Process(cluster.nodes[leader].process.pid)
        before = process.memory_info().rss
        for _ in range(readers):
            await client.read(address, shard="orders", idle=True)
        await whole()
        grown = process.memory_info().rss - before
        assert grown < readers * (8 << 20), f"{grown >> 20} MiB for {readers} readers of 40 MiB"
        assert "base_offset" in (await appending.append(batches + 1, b"x"))["answer"]


def test_tls(tmp_path):
    authority = trustme.CA()
    issued = {"node": authority.issue_cert("127.0.0.1"), "client": authority.issue_cert("me")}
    paths = {"authority": str(tmp_path / "authority.pem")}
    authority.cert_pem.write_to_path(paths["authority"])
    for who, each in issued.items():
        paths[f"{who} certificate"] = str(tmp_path / f"{who}.pem")
        paths[f"{who} key"] = str(tmp_path / f"{who}.key")
        each.cert_chain_pems[0].write_to_path(paths[f"{who} certificate"])
        each.private_key_pem.write_to_path(paths[f"{who} key"])
    files = ("authority", "node certificate", "node key")
    settings = ("tls-authority", "tls-certificate", "tls-key")
    flags = [f"--{name}={paths[part]}" for name, part in zip(settings, files, strict=True)]

    async def whole() -> None:
        cluster = Cluster(tmp_path, "a", arguments=(*PUBLIC, *flags))
        mine = issued["client"]
        cluster.tls = ControlTls(
            authority.cert_pem.bytes(),
            mine.cert_chain_pems[0].bytes(),
            mine.private_key_pem.bytes(),
        )
        async with cluster.running():
            await cluster.create("orders")
            with stranger(tmp_path / "stubs") as client:
                known = (paths["authority"], paths["client key"], paths["client certificate"])
                appending = await client.open(public(cluster, "a"), "orders", tls=known)
                assert "base_offset" in (await appending.append(1, b"x"))["answer"]
            for number, tls in enumerate((None, (paths["authority"], None, None))):
                with stranger(tmp_path / f"stubs {number}") as unknown:
                    refused = await unknown.open(public(cluster, "a"), "orders", tls=tls)
                    assert refused.first == {"end": "UNAVAILABLE"}

    asyncio.run(whole())


def test_a_node_serves_it_only_where_it_is_asked_for(tmp_path):
    with node(tmp_path / "volume", "node-1") as running:
        assert "public" not in running.ready


def test_settings_that_do_not_fit(tmp_path):
    least = ("--name", "node-1", "--plain", *ANY_PORT, "--directory", str(tmp_path / "volume"))
    status, told = refused(*least, "--public-addresses", "nodes.example:7403")
    assert (status, told) == (2, "shardlog-node: public_addresses: {node} is not in it\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, told = refused(*least, "--public-port", port)
    assert status == 8
    assert told.startswith(f"shardlog-node: public_port: 127.0.0.1:{port}: ")
    assert told.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stop_ends_streams(tmp_path, number):
    @story(tmp_path, "a")
    async def _(cluster: Cluster, leader: str, client: Stranger) -> None:
        address = public(cluster, leader)
        appending = await client.open(address, "orders")
        await appending.append(1, b"x")
        following = await client.read(address, shard="orders", follow=True)
        assert "answer" in await client.next(following)
        cluster.nodes[leader].signal(number)
        ended = await asyncio.to_thread(cluster.nodes[leader].ended)
        assert ended == (0 if number == signal.SIGTERM else -number)
        for stream in (appending.stream, following):
            assert "end" in await client.next(stream)
