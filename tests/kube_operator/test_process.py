"""The operator as a process, and a client that finds its way by nothing but the operator's URL."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import yaml
from cluster_keys import key_file

from kube_operator.emulator import Api
from kube_operator.installation import Installation, shard_body
from shardlog.cli import exit_codes
from shardlog.client import Client
from shardlog.process.ends import Exit


def test_exit_statuses_are_those_of_the_command():
    known = {name: getattr(exit_codes, name) for name in dir(exit_codes) if name.isupper()}
    assert {each.name: each.value for each in Exit}.items() <= known.items()


def kubeconfig(directory: Path, api: Api) -> Path:
    path = directory / "kubeconfig"
    context = {"cluster": "here", "user": "me"}
    document = {
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{api.port}"}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "here", "context": context}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def started(directory: Path, *arguments: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "KUBECONFIG": str(directory / "kubeconfig")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shardlog_operator.main", "--namespace", "logs", "--plain",
        "--cluster-key-file", key_file(directory), "--http-port", "0",
        "--log-format", "json", *arguments,
        env=environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def said(process: asyncio.subprocess.Process, word: str) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while True:
            line = (await process.stderr.readline()).decode()
            assert line, f"it ended before it said {word}"
            if word in line:
                return line


def test_it_starts_serves_and_stops_as_asked(tmp_path: Path):
    async def story() -> None:
        async with Api().running() as api:
            kubeconfig(tmp_path, api)
            process = await started(tmp_path, "--metadata", str(tmp_path / "metadata.sqlite"))
            told = yaml.safe_load(await said(process, '"started"'))
            async with asyncio.timeout(60), aiohttp.ClientSession() as session:
                while True:
                    async with session.get(f"http://{told['http']}/readyz") as answer:
                        if answer.status == 200:
                            break
                    await asyncio.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            await said(process, '"stopped"')
            assert await process.wait() == Exit.OK

    asyncio.run(story())


def test_what_cannot_be_used_is_one_line(tmp_path: Path):
    async def story(*arguments: str) -> tuple[int, str]:
        process = await started(tmp_path, *arguments)
        _, told = await process.communicate()
        return process.returncode or 0, told.decode()

    status, told = asyncio.run(story("--metadata", str(tmp_path / "no" / "such" / "file")))
    assert status == Exit.UNAVAILABLE
    assert told.startswith("shardlog-operator: ")
    assert told.count("\n") == 1
    status, told = asyncio.run(story("--etcd-endpoints", "not an endpoint"))
    assert status == Exit.UNAVAILABLE
    assert "is not HOST or HOST:PORT" in told


def test_a_client_needs_the_operators_url_and_a_name(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, "node-0 node-1 node-2").running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            leader = (await it.ready())["leader"]
            async with Client(f"http://{it.operator.address}") as client:
                async with client.producer("orders") as producer:
                    await producer.append(b"before")
                    await it.lose_node(leader)
                    await producer.append(b"after")
                found = []
                async for record in client.read("orders"):
                    found.append(record.value)
                assert found == [b"before", b"after"]
            await it.api.until(lambda: it.status().get("leader") != leader)

    asyncio.run(story())
