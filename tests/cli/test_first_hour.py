"""What a newcomer meets first: failures of one line, tables that fit, a cluster that is found."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardlog.cli import exit_codes, output
from shardlog.cli.main import main
from shardlog.cli.status import _facts
from shardlog.cli.waiting import describe_change
from shardlog.client import Client
from shardlog.client.blocking import Client as BlockingClient
from shardlog.client.failures import DeadlineExceeded, InvalidArgument
from shardlog.extras import remedy
from shardlog.local import starting
from shardlog.local.cluster_file import (
    WELL_KNOWN_PORT,
    is_free,
    load,
    new_cluster,
    port_of,
    save,
)
from shardlog.local.layout import Layout

NOWHERE = "http://127.0.0.1:1"


def run(*words: str, **environment: str) -> tuple[int, str]:
    result = CliRunner(env=environment).invoke(main, list(words))
    assert "Traceback" not in result.output
    return result.exit_code, result.stderr.strip()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("stauts", exit_codes.USAGE, "Did you mean 'status'?"),
        ("shard creat x", exit_codes.USAGE, "Did you mean 'create'?"),
        ("shard list --outptu json", exit_codes.USAGE, "Did you mean '--output'?"),
        ("shard create", exit_codes.USAGE, "Missing argument 'NAME'.  (shardlog shard create"),
        ("--bad", exit_codes.USAGE, "No such option '--bad'"),
        ("sim run --seeds -3", exit_codes.USAGE, "-3 is not in the range"),
        ("storage inspect /absent", exit_codes.USAGE, "/absent: no such directory"),
        ("append x --json --null", exit_codes.USAGE, "exclude each other"),
        ("append x --file /absent", exit_codes.INPUT, "/absent: No such file"),
        ("append x --file /", exit_codes.INPUT, "Is a directory"),
        ("read x --from abc", exit_codes.USAGE, "'abc' is not a valid offset"),
        ("local status --dir /absent", exit_codes.UNAVAILABLE, "no cluster in /absent"),
        ("local up --dir /proc/absent", exit_codes.UNAVAILABLE, "cannot be made or used"),
        ("demo --svg /absent/x.svg", exit_codes.USAGE, "there is no directory /absent"),
        ("shard create x --node a --replicas 3", exit_codes.USAGE, "--replicas 3 contradicts"),
        ("shard create x --node a --node a", exit_codes.USAGE, "given twice"),
    ],
)
def test_points_9_18_and_19_a_failure_is_one_line(words: str, code: int, told: str):
    environment = {"SHARDLOG_CLUSTER": NOWHERE}
    found, line = run(*words.split(), **environment)
    assert (found, line.count("\n")) == (code, 0), line
    assert line.startswith("shardlog: ")
    assert told in line


@pytest.mark.parametrize("words", ["shard list", "status x", "append x y", "read x", "tail x"])
def test_point_16_a_coordinator_that_is_away_is_named(words: str):
    timeout = [] if words in ("shard list", "status x") else ["--timeout", "3"]
    code, line = run(*words.split(), *timeout, SHARDLOG_CLUSTER=NOWHERE)
    assert code == exit_codes.UNAVAILABLE
    assert f"no answer from the coordinator at {NOWHERE}: Connection refused" in line
    assert "`shardlog local status`" in line
    assert "ssl" not in line


def test_point_16_in_python_too():
    told = r"Connection refused \(`shardlog local status`"
    with BlockingClient(NOWHERE) as client, pytest.raises(DeadlineExceeded, match=told):
        client.end("x", deadline_ms=3_000)


def test_every_command_has_a_short_option_for_help():
    for words in (["-h"], ["shard", "-h"], ["shard", "create", "-h"]):
        assert CliRunner().invoke(main, words).exit_code == exit_codes.OK


def test_point_18_a_swap_is_told_in_the_order_in_which_it_is_asked_for():
    change = {"operation": "swap", "old": "node-3", "new": "node-4", "phase": "PREPARE"}
    assert describe_change({"reconfiguration": change}) == "swap node-3 for node-4: PREPARE"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_point_17_a_table_that_does_not_fit_is_stacked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    columns = "name status leader epoch> replicas> ensemble quorum kept change"
    row = ("orders", "STEADY", "node-1", 12, 3, ["node-1", "node-2", "node-3"],
           "majority of everything", "everything", "swap node-3 for node-4: PREPARE")  # fmt: skip
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    output.print_table(columns, [row])
    output.print_table("name status", [row[:2]])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    shown = [" ".join(line.split()) for line in lines]
    assert "ENSEMBLE node-1, node-2, node-3" in shown
    assert "CHANGE swap node-3 for node-4: PREPARE" in shown
    assert "NAME STATUS" in shown


EXTRAS = ["uvloop", "blake3", "obstore", "grpc", "grpc_health", "structlog", "pydantic",
          "pydantic_settings"]  # fmt: skip


@pytest.mark.parametrize("words", ["demo", "snapshot list x /tmp", "local up"])
def test_point_8_a_missing_library_is_one_line(tmp_path: Path, words: str):
    """With a finder in front of all others that has none of the libraries of extras."""
    done = without(EXTRAS, "from shardlog.cli.main import main; main()", tmp_path, *words.split())
    assert done.returncode in (exit_codes.USAGE, exit_codes.UNAVAILABLE), done.stderr
    assert done.stderr.count("\n") == 1
    assert "is not installed: pip install 'shardlog[" in done.stderr


@pytest.mark.parametrize("program", ["node", "operator"])
@pytest.mark.parametrize("hidden", ["pydantic", "uvloop"])
def test_point_8_programs_name_their_extra(tmp_path: Path, program: str, hidden: str):
    text = f"from shardlog_{program}.main import main; main()"
    settings = ["--name", "a", "--directory", str(tmp_path), "--plain"]
    if program == "operator":
        settings = ["--namespace", "logs", "--plain", "--etcd-endpoints", "127.0.0.1:1"]
    done = without([hidden], text, tmp_path, *settings, "--cluster-key-file", "k")
    assert done.returncode == exit_codes.USAGE, done.stderr
    assert done.stderr == (
        f"shardlog-{program}: {hidden} is not installed: pip install 'shardlog[{program}]'\n"
    )


HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""


def without(
    hidden: list[str], text: str, home: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if "SHARDLOG" not in name}
    return subprocess.run(
        [sys.executable, "-c", HIDE.format(hidden=set(hidden)) + text, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=clean | {"HOME": str(home)},
    )


def test_point_8_other_modules_are_bugs():
    assert remedy(ModuleNotFoundError("No module named 'nonsense'", name="nonsense")) is None


def test_point_7_the_first_cluster_takes_the_port_that_the_documents_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SHARDLOG_DIR", raising=False)
    free = is_free(f"127.0.0.1:{WELL_KNOWN_PORT}")
    layout = Layout.of(None)
    layout.directory.mkdir(parents=True)
    cluster = starting.prepare(layout, 1)
    assert (port_of(cluster.coordinator) == WELL_KNOWN_PORT) is free
    elsewhere = Layout.of(tmp_path / "elsewhere")
    elsewhere.directory.mkdir()
    assert port_of(starting.prepare(elsewhere, 1).coordinator) != WELL_KNOWN_PORT
    assert load(layout).url == cluster.url


def test_point_7_a_client_finds_the_cluster_as_commands_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SHARDLOG_CLUSTER", raising=False)
    monkeypatch.setenv("SHARDLOG_DIR", str(tmp_path))
    with pytest.raises(InvalidArgument, match="`shardlog local up` makes one"):
        BlockingClient()
    (tmp_path / "cluster.json").write_text(json.dumps({"no": "cluster"}))
    with pytest.raises(InvalidArgument):
        BlockingClient()
    cluster = new_cluster(1)
    save(Layout.of(tmp_path), cluster)
    assert directory_url() == cluster.url
    monkeypatch.setenv("SHARDLOG_CLUSTER", NOWHERE)
    assert directory_url() == NOWHERE


def directory_url() -> str:
    with BlockingClient() as client:
        made: Client = client._client
        return str(made._directory._url)  # type: ignore[attr-defined]


def test_who_follows_ends_when_nobody_reads_any_more():
    text = (
        "import threading; from shardlog.cli.client import leave_when_pipe_closes as leave\n"
        "leave(); print('ready', flush=True); threading.Event().wait()"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"ready\n"
        following.stdout.close()
        assert following.wait(60) == exit_codes.OK


def test_point_4_a_full_volume_is_named():
    full = {"node": "node-1", "full": True, "bad": 0, "repaired": 0}
    shard = {
        "status": "STEADY", "epoch": 1, "leader": None, "ensemble": ["node-1", "node-2"],
        "replicas": 2, "quorum": {"replication": None}, "reconfiguration": None, "halted": "",
        "waiting": None, "losses": [],
        "reports": [full, full | {"node": "node-2", "full": False}],
    }  # fmt: skip
    assert "no space left on the volume of node-1: " in str(dict(_facts(shard))["full"])
