"""`append`, `read` and `tail` with certificates from the environment, against nodes that ask."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop
from click.testing import CliRunner, Result
from client.cluster import SHARD, ClientCluster
from transport.ends import certificates

from shardlog.cli.main import main


def files(directory: Path) -> dict[str, str]:
    known = certificates()
    mine = known.authority.issue_cert("client-1")
    known.authority.cert_pem.write_to_path(directory / "ca.crt")
    mine.cert_chain_pems[0].write_to_path(directory / "tls.crt")
    mine.private_key_pem.write_to_path(directory / "tls.key")
    return {
        "SHARDLOG_TLS_AUTHORITY": str(directory / "ca.crt"),
        "SHARDLOG_TLS_CERTIFICATE": str(directory / "tls.crt"),
        "SHARDLOG_TLS_KEY": str(directory / "tls.key"),
    }


def run(environment: dict[str, str], *args: str) -> Result:
    return CliRunner().invoke(main, args, env=environment)


def test_records_go_there_and_back(tmp_path: Path):
    environment = files(tmp_path)
    known = certificates()

    async def told() -> list[Result]:
        tls = known.node_context(mutual=True)
        cluster = ClientCluster(tmp_path / "nodes", tls=tls, link_tls=known.client_context())
        async with cluster.running():
            await cluster.create(SHARD)
            at = ("--cluster", cluster.addresses_url)
            return [
                await asyncio.to_thread(run, environment, "append", SHARD, "one", "two", *at),
                await asyncio.to_thread(run, environment, "read", SHARD, *at),
                await asyncio.to_thread(run, environment, "tail", SHARD, "-n", "1", *at),
            ]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as nodes have it
        appended, read, tail = runner.run(told())
    assert appended.exit_code == 0, appended.output
    assert read.output == "one\ntwo\n"
    assert tail.output == "two\n"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"SHARDLOG_TLS_AUTHORITY": "/no/such"}, "/no/such: No such file or directory"),
        ({"SHARDLOG_TLS_KEY": ""}, "SHARDLOG_TLS_CERTIFICATE and SHARDLOG_TLS_KEY go together"),
        ({"SHARDLOG_TLS_AUTHORITY": ""}, "SHARDLOG_TLS_AUTHORITY: needed with the certificate"),
        ({"SHARDLOG_TLS_AUTHORITY": __file__}, f"{__file__}: no certificate or crl found"),
        ({"SHARDLOG_TLS_KEY": __file__}, f"with {__file__}: not PEM"),
    ],
)
@pytest.mark.parametrize("command", ["append", "read", "tail"])
def test_what_cannot_be_used_is_told(
    tmp_path: Path, change: dict[str, str], told: str, command: str
):
    words = ("word",) if command == "append" else ()
    at = ("--cluster", "shardlog://127.0.0.1:1")
    result = run(files(tmp_path) | change, command, SHARD, *words, *at)
    assert result.exit_code == 2
    assert told in result.output
    assert len(result.output.splitlines()) == 1
