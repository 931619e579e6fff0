"""The kubectl plugin as far as it goes without a cluster; `e2e/operated` has one."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from local.commands import answered

from shardlog.cli import exit_codes
from shardlog.cli.kubectl import main
from shardlog.cli.kubectl_complete import candidates


@pytest.fixture
def _no_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBECTL", raising=False)


@pytest.mark.usefixtures("_no_kubectl")
@pytest.mark.parametrize(
    "arguments",
    [
        ["status"], ["status", "orders"], ["promote", "orders", "node-1"], ["abort", "orders"],
        ["swap", "orders", "node-1"], ["drain", "node-1"], ["undrain", "node-1"], ["logs"],
        ["accept-loss", "orders", "3:7", "--yes"], ["snapshot", "list"],
        ["snapshot", "create", "orders", "s3://b/p", "--keep", "3"],
        ["snapshot", "delete", "one", "--data", "--yes"],
    ],
)  # fmt: skip
def test_without_kubectl_it_is_one_line(arguments: list[str]):
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == exit_codes.UNAVAILABLE
    assert done.stderr == "shardlog: kubectl is not on PATH\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"], ["promote", "orders"], ["status", "-o", "toml"],
        ["accept-loss", "orders", "seven", "--yes"], ["accept-loss", "orders", "3:", "--yes"],
        ["snapshot", "create", "orders"], ["snapshot", "delete"],
        ["snapshot", "create", "orders", "s3://b/p", "--keep", "0"],
    ],
)  # fmt: skip
def test_usage(arguments: list[str]):
    assert CliRunner().invoke(main, arguments).exit_code == exit_codes.USAGE


def test_a_loss_is_asked_about():
    for asks in (["accept-loss", "orders", "3:7"], ["snapshot", "delete", "one", "--data"]):
        done = CliRunner().invoke(main, asks)
        assert done.exit_code == exit_codes.USAGE
        assert "--yes" in done.stderr
        program = [sys.executable, "-m", "shardlog.cli.kubectl", *asks]
        status, _ = answered(program, "n")
        assert status == exit_codes.INTERRUPTED


@pytest.mark.usefixtures("_no_kubectl")
def test_a_report_says_what_is_missing(tmp_path: Path):
    path = tmp_path / "report.tar.gz"
    done = CliRunner().invoke(main, ["report", "--file", str(path)])
    assert done.exit_code == exit_codes.OK
    assert "not in it: objects/shards.json: kubectl is not on PATH" in done.stderr
    with tarfile.open(path) as archive:
        told = archive.extractfile("shardlog-report/report.json")
        assert told is not None
        assert json.loads(told.read())["missing"]
    again = CliRunner().invoke(main, ["report", "--file", str(path)])
    assert again.exit_code == exit_codes.USAGE
    assert "File exists" in again.stderr


LINES = [
    "[pod/node-1/node] orders leads",
    "[pod/node-1/node] orders-eu leads",
    "[pod/node-2/node] /volume/orders/one.segment",
    "[pod/node-2/node] my.orders, orders.eu",
    "[pod/operator/operator] {'shard': 'orders'}",
    "[pod/operator/operator] started",
]


@pytest.fixture
def kubectl_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """A program in the place of kubectl."""

    def says(script: str) -> None:
        program = tmp_path / "kubectl"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("KUBECTL", str(program))

    return says


def test_logs_of_a_shard_are_the_lines_with_its_name(kubectl_says: Callable[[str], None]):
    lines = "\n".join(LINES)
    kubectl_says(f"cat <<'END'\n{lines}\nEND")
    assert CliRunner().invoke(main, ["logs"]).stdout.splitlines() == LINES
    done = CliRunner().invoke(main, ["logs", "orders"])
    assert done.exit_code == exit_codes.OK
    assert done.stdout.splitlines() == [LINES[0], LINES[2], LINES[4]]


def test_logs_that_end_in_a_failure_say_so(kubectl_says: Callable[[str], None]):
    kubectl_says("echo one line; echo 'Error from server (Forbidden): not you' >&2; exit 1")
    done = CliRunner().invoke(main, ["logs"])
    assert (done.exit_code, done.stdout) == (exit_codes.REFUSED, "one line\n")
    assert done.stderr == "shardlog: (Forbidden): not you\n"
    kubectl_says("exit 3")
    done = CliRunner().invoke(main, ["logs"])
    assert (done.exit_code, done.stderr) == (
        exit_codes.UNAVAILABLE, "shardlog: kubectl ended with 3\n",
    )  # fmt: skip


@pytest.mark.usefixtures("_no_kubectl")
@pytest.mark.parametrize(
    ("words", "first"),
    [
        ((), "status"), (("",), "status"), (("pro",), "promote"), (("promote", "orders", ""), None),
        (("status", "-o", "j"), "json"), (("drain", "--no"), "--no-wait"),
        (("snapshot", ""), "create"), (("snapshot", "create", "--cl"), "--claim"),
        (("snapshot", "delete", ""), None),
    ],
)  # fmt: skip
def test_completion(words: tuple[str, ...], first: str | None):
    found = [each.partition("\t")[0] for each in candidates(words)]
    assert (found[0] if found else None) == first
