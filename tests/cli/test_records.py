"""`append`, `read` and `tail` on one cluster of real processes.

Every test has a shard of its own, or one that nobody changes.
"""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import termios
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from click.testing import CliRunner, Result
from local.commands import SHARDLOG, LocalCluster, local_cluster

from shardlog.cli import exit_codes
from shardlog.cli.main import main
from shardlog.client import Client as AsyncClient
from shardlog.client.blocking import Client
from shardlog.client.limits import LIMITS
from shardlog.demo.ledger import Check, Ledger, value_of
from shardlog.local.cluster_file import load
from shardlog.transport.batch import PREFIX, BatchBuilder
from shardlog.transport.compression import Compression

pytestmark = pytest.mark.xdist_group("local clusters")

LINES = [f"line {number}" for number in range(50)]
NOBODY = "--cluster http://127.0.0.1:1 --timeout 0.2"
BINARY = [b"", b"\n", b"two\nlines", b"\xff\xfe", bytes(range(1, 256)), "ü".encode()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.run("local up")
        cluster.run("shard create lines")
        run(cluster, "append", "lines", stdin="\n".join(LINES).encode())
        yield cluster


@pytest.fixture
def shard(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    name = f"shard-{abs(hash(request.node.name))}"
    cluster.run(f"shard create {name} --replicas 1")
    return name


def run(cluster: LocalCluster, *args: str, stdin: bytes = b"", code: int = 0) -> Result:
    environment = {"SHARDLOG_DIR": str(cluster.layout.directory)}
    result = CliRunner().invoke(main, args, input=stdin, env=environment)
    assert result.exit_code == code, f"{args}: {result.exit_code}: {result.output}"
    assert "Traceback" not in result.output
    return result


def refused(cluster: LocalCluster, *args: str, stdin: bytes = b"", code: int) -> str:
    """The one line on the error output."""
    result = run(cluster, *args, stdin=stdin, code=code)
    (told,) = result.stderr.splitlines()
    return told


@contextmanager
def started(
    cluster: LocalCluster, *args: str, stdin: int | None = None, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [SHARDLOG, *args],
        env={**cluster.environment, **environment},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def interrupt(process: subprocess.Popen[bytes]) -> bytes:
    """What is said on the error output."""
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == exit_codes.INTERRUPTED
    assert b"Traceback" not in told
    return told


# --- append --------------------------------------------------------------------------------------


def test_arguments_get_their_offsets_printed(cluster: LocalCluster, shard: str):
    first, second = map(int, run(cluster, "append", shard, "one", "two words").stdout.split())
    assert second == first + 1
    assert run(cluster, "read", shard).stdout == "one\ntwo words\n"
    assert run(cluster, "append", shard, "three", "-q").stdout == ""


def test_bulk_input_is_counted(cluster: LocalCluster, shard: str, tmp_path: Path):
    file = tmp_path / "records"
    file.write_text("".join(f"{number}\n" for number in range(100_000)))
    told = run(cluster, "append", shard, "--file", str(file)).stdout
    assert told.startswith("100,000 records appended, offsets ")
    assert told.endswith(" records/s\n")
    assert run(cluster, "read", shard).stdout == file.read_text()


def test_an_empty_input_is_no_failure(cluster: LocalCluster):
    assert run(cluster, "append", "lines").stdout.startswith("no records appended")


def test_what_was_done_is_told_as_json_too(cluster: LocalCluster, shard: str):
    found = json.loads(run(cluster, "append", shard, "-o", "json", stdin=b"a\nbc\n").stdout)
    assert (found["records"], found["bytes"]) == (2, 3)
    told = run(cluster, "append", shard, "-", "--offsets", stdin=b"d\ne").stdout
    first, second = map(int, told.split())
    assert found["last"] < first == second - 1


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_binary_records_survive(cluster: LocalCluster, shard: str, compression: str):
    data = b"".join(each + b"\0" for each in BINARY)
    run(cluster, "append", shard, "--null", "--compression", compression, stdin=data)
    assert run(cluster, "read", shard, "--null").stdout_bytes == data


def test_records_survive_json_with_keys_headers_and_times(cluster: LocalCluster, shard: str):
    lines: list[dict[str, Any]] = [
        {"value": "plain"},
        {"value_base64": "//4=", "key": "k", "timestamp_ms": 1234},
        {"value": "", "key_base64": "/w==", "headers": [{"name": "h", "value_base64": "/w=="}]},
    ]
    stdin = "\n".join(map(json.dumps, lines)).encode()
    run(cluster, "append", shard, "--json", stdin=stdin)
    copied = run(cluster, "read", shard, "-o", "json").stdout
    run(cluster, "append", shard, "--json", stdin=copied.encode())
    found = [
        json.loads(line)
        for line in run(cluster, "read", shard, "-o", "json").stdout.split("\n")[:-1]
    ]
    for each in found:
        each.pop("offset")
    assert found[:3] == found[3:]
    times = [each.pop("timestamp_ms") for each in found]
    lines[1].pop("timestamp_ms")
    assert found[:3] == lines
    assert times[1] == times[4] == 1234


def test_a_key_for_all(cluster: LocalCluster, shard: str):
    run(cluster, "append", shard, "--key", "k", "a", "b")
    with Client(load(cluster.layout).url) as client:
        assert [(each.key, each.value) for each in client.read(shard)] == [
            (b"k", b"a"),
            (b"k", b"b"),
        ]


def test_appending_goes_on_over_a_failover(cluster: LocalCluster):
    """Records go in while the leader is killed; each is there once."""
    cluster.run("shard create failing")
    with started(cluster, "append", "failing", "--offsets", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = wait_for_first_ack(process.stdin, process.stdout)
        killed = cluster.shard("failing")["leader"]
        cluster.run(f"local kill {killed}")
        process.stdin.write(b"".join(b"%d\n" % number for number in range(1, 1000)))
        rest, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
        offsets = [before, *map(int, rest.split())]
        assert len(offsets) == 1000
        assert offsets == sorted(set(offsets))
        assert run(cluster, "read", "failing").stdout.split() == [str(each) for each in range(1000)]
        cluster.run("local up")


def wait_for_first_ack(stdin: IO[bytes], stdout: IO[bytes]) -> int:
    stdin.write(b"0\n")
    stdin.flush()
    return int(stdout.readline())


# --- read and tail -------------------------------------------------------------------------------


def test_a_part_is_read(cluster: LocalCluster):
    every = [
        json.loads(line) for line in run(cluster, "read", "lines", "-o", "json").stdout.splitlines()
    ]
    assert [each["value"] for each in every] == LINES
    offset = every[10]["offset"]
    two = run(cluster, "read", "lines", "--from", str(offset), "--count", "2").stdout
    assert two.splitlines() == LINES[10:12]
    part = run(cluster, "read", "lines", "--from", str(offset), "--to", str(offset + 3)).stdout
    assert part.splitlines() == LINES[10:13]
    assert run(cluster, "read", "lines", "--count", "0").stdout == ""
    assert run(cluster, "read", "lines", "--from", "1000000").stdout == ""


def test_reading_from_a_time(cluster: LocalCluster, shard: str):
    run(cluster, "append", shard, "old")
    (old,) = run(cluster, "read", shard, "-o", "json").stdout.splitlines()
    at_ms = json.loads(old)["timestamp_ms"]
    while time.time() * 1000 <= at_ms + 10:
        time.sleep(0.01)
    run(cluster, "append", shard, "new")
    assert run(cluster, "read", shard, "--from-time", f"@{(at_ms + 1) / 1000}").stdout == "new\n"
    assert run(cluster, "read", shard, "--from-time", "1h").stdout == "old\nnew\n"
    assert run(cluster, "tail", shard, "--from-time", "2030-01-31T12:00:00Z").stdout == ""


def test_a_table_shows_what_a_terminal_could_mistake(cluster: LocalCluster, shard: str):
    run(cluster, "append", shard, "--key", "k", "a\x1b[2Jb", "\u00fc\t")
    heading, first, second = run(cluster, "read", shard, "-o", "table").stdout.splitlines()
    assert heading.split() == ["OFFSET", "TIME", "KEY", "VALUE"]
    assert first.split()[2:] == ["k", "a\\x1b[2Jb"]
    assert second.split()[2:] == ["k", "\u00fc\\t"]


def test_S23_a_terminal_gets_no_commands(cluster: LocalCluster, shard: str):
    run(cluster, "append", shard, "a\x1b[2Jb\tc")
    ours, theirs = os.openpty()
    command = [SHARDLOG, "read", shard]
    subprocess.run(command, stdout=theirs, env=cluster.environment, check=True, timeout=60)
    assert os.read(ours, 1000).rstrip() == b"a\\x1b[2Jb\tc"
    os.close(ours)
    os.close(theirs)


def test_the_last_records(cluster: LocalCluster):
    assert run(cluster, "tail", "lines").stdout.splitlines() == LINES[-10:]
    assert run(cluster, "tail", "lines", "-n", "3").stdout.splitlines() == LINES[-3:]
    assert run(cluster, "tail", "lines", "-n", "1000").stdout.splitlines() == LINES
    assert run(cluster, "tail", "lines", "-n", "0").stdout == ""


def test_tail_follows_until_it_is_interrupted(cluster: LocalCluster, shard: str):
    run(cluster, "append", shard, "before")
    with started(cluster, "tail", shard, "-f") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"before\n"
        run(cluster, "append", shard, "after")
        assert process.stdout.readline() == b"after\n"
        assert interrupt(process) == b"interrupted\n"


def test_who_has_read_enough_may_leave(cluster: LocalCluster, shard: str):
    run(cluster, "append", shard, stdin=b"x" * 100 + b"\n" + b"y\n" * 100_000)
    with started(cluster, "read", shard) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x" * 100 + b"\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == exit_codes.OK


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("append absent x", exit_codes.REFUSED, "no shard 'absent'"),
        ("read absent", exit_codes.REFUSED, "no shard 'absent'"),
        ("tail absent -f", exit_codes.REFUSED, "no shard 'absent'"),
        ("append lines --file /absent", exit_codes.INPUT, "/absent: No such file"),
        ("append lines --file .", exit_codes.INPUT, "directory"),
        ("append lines x --file y", exit_codes.USAGE, "cannot be given together"),
        ("append lines --json --key k", exit_codes.USAGE, "keys of its own"),
        ("read lines --from 1 --from-time 5m", exit_codes.USAGE, "exclude each other"),
        ("read lines --from-time yesterday", exit_codes.USAGE, "is no time"),
        ("read lines --from -1", exit_codes.USAGE, "0"),
        ("tail lines --from 1 -n 1", exit_codes.USAGE, "--count"),
        ("read lines --cluster file:///x", exit_codes.USAGE, "http://"),
        ("append lines x --cluster file:///x", exit_codes.USAGE, "http://"),
        ("append lines x --cluster shardlog://nowhere", exit_codes.USAGE, "host:port"),
        (f"read lines {NOBODY}", exit_codes.UNAVAILABLE, "200 ms"),
        (f"append lines x {NOBODY}", exit_codes.UNAVAILABLE, "200 ms"),
        (f"tail lines {NOBODY.replace('http', 'shardlog')}", exit_codes.UNAVAILABLE, "200 ms"),
    ],
)  # fmt: skip
def test_failures_are_told(cluster: LocalCluster, line: str, code: int, said: str):
    result = run(cluster, *line.split(), code=code)
    assert said in result.stderr
    assert result.stdout == ""


def test_a_record_over_the_limit_ends_it_behind_those_before(cluster: LocalCluster, shard: str):
    large = b"x" * (LIMITS.record_bytes_max + 1)
    told = refused(cluster, "append", shard, stdin=b"a\nb\n" + large, code=exit_codes.INPUT)
    assert "record 3" in told
    assert "2 records appended" in told
    told = refused(
        cluster, "append", shard, "--json", stdin=b'{"value":"c"}\n{"x":1}', code=exit_codes.INPUT
    )
    assert "line 2: 'x' is no field" in told
    assert run(cluster, "read", shard).stdout == "a\nb\nc\n"


@pytest.mark.parametrize(
    "line",
    ['"text"', "{", "{}", '{"value": 1}', '{"value": "a", "value_base64": "YQ=="}', "[" * 10_000,
     '{"value_base64": "?"}', '{"value": "a", "timestamp_ms": -1}', '{"value":"a","headers":{}}',
     '{"value": "a", "headers": [{"name": "n"}]}'],
)  # fmt: skip
def test_json_that_is_no_record(cluster: LocalCluster, line: str):
    told = refused(cluster, "append", "lines", "--json", stdin=line.encode(), code=exit_codes.INPUT)
    assert "standard input, line 1: " in told
    assert "no records appended" in told


def test_an_append_can_be_interrupted(cluster: LocalCluster, shard: str):
    """Whatever the cluster does: it is not waited for."""
    arguments = ("append", shard, "--offsets", "--timeout", "1000")
    with started(cluster, *arguments, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        wait_for_first_ack(process.stdin, process.stdout)
        (node,) = cluster.shard(shard)["ensemble"]
        cluster.run(f"local pause {node}")
        try:
            process.stdin.write(b"1\n2\n")
            process.stdin.flush()
            wait_until_read(process)
            told = interrupt(process)
        finally:
            cluster.run(f"local resume {node}")
    assert told.startswith(b"1 record appended")
    assert told.endswith(b"interrupted\n")


def test_output_that_is_not_taken_is_not_lost_when_its_writer_is_stopped(
    cluster: LocalCluster, shard: str
):
    """A write that a signal ends has written a part; Python, unbuffered, forgets the rest."""
    values = [b"%07d" % number for number in range(40_000)]
    cluster.append(shard, values)
    with started(cluster, "read", shard, "-o", "json", PYTHONUNBUFFERED="1") as process:
        assert process.stdout is not None
        wait_until_holds(process.stdout, fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ))
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)
        process.send_signal(signal.SIGCONT)
        found, _ = process.communicate(timeout=60)
    assert [json.loads(line)["value"].encode() for line in found.splitlines()] == values


def wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 30
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_until_holds(pipe: IO[bytes], wanted: int) -> None:
    """Until so many bytes wait in it."""
    waiting = array("i", [0])
    deadline = time.monotonic() + 30
    while waiting[0] < wanted:
        assert time.monotonic() < deadline
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)
        time.sleep(0.01)


def wait_until_read(process: subprocess.Popen[bytes]) -> None:
    """Until its input is empty."""
    assert process.stdin is not None
    waiting = array("i", [1])
    deadline = time.monotonic() + 30
    while waiting[0] and time.monotonic() < deadline:
        fcntl.ioctl(process.stdin, termios.FIONREAD, waiting)


def test_a_loss_in_the_log_is_found_by_the_check(cluster: LocalCluster, shard: str):
    """What `shardlog demo` does, with records dropped before they are read back."""
    ledger = Ledger()
    with Client(load(cluster.layout).url) as client:
        with client.producer(shard) as producer:
            for first in range(0, 100, 10):
                values = [value_of(number, b"") for number in range(first, first + 10)]
                ledger.send(values)
                ledger.acknowledge(first, producer.append_many(values))
        offset = ledger.offset(50)
        cluster.run(f"ops trim {shard} {offset} --yes")
        deadline = time.monotonic() + 30
        while client.first(shard) == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        check = Check(ledger)
        for batch in client.batches(shard, from_first_kept=True):
            check.take(batch.base_offset, batch.batch.values.all())
        first = client.first(shard)
    findings = check.findings()
    assert findings.missing == tuple(
        number for number in range(100) if (ledger.offset(number) or 0) < first
    )
    assert findings.missing
    trimmed = refused(cluster, "read", shard, "--from", "0", code=exit_codes.REFUSED)
    assert f"starts at offset {first}" in trimmed


def test_S13_entries_that_cannot_be_read_are_told_and_passed_over(
    cluster: LocalCluster, shard: str
):
    garbled = PREFIX.pack(Compression.ZSTD, 1, 0, 64) + b"nothing that was compressed"
    builder = BatchBuilder()
    builder.append(b"fine", headers=[("name", b"content")])
    builder.append(b"bad", headers=[("other", b"content")])
    cut = bytearray(builder.body())
    at = cut.index(b"other") - 6
    cut[at : at + 2] = b"\xff\xff"

    async def append() -> list[int]:
        async with AsyncClient(load(cluster.layout).url) as client:
            session = await client.register(shard)
            async with client.numbered(shard, session) as producer:
                futures = [await producer.append(garbled, 1), await producer.append(bytes(cut), 2)]
            return [future.result() for future in futures]

    cluster.append(shard, [b"before"])
    first, second = asyncio.run(append())
    cluster.append(shard, [b"after"])
    for command in ("read", "tail"):
        told = refused(cluster, command, shard, code=exit_codes.DAMAGED)
        assert f"at offset {first} holds no batch of records" in told
        assert told.endswith(f"the next entry begins at {first + 1}")
        result = run(cluster, command, shard, "--skip-unreadable")
        assert result.stdout_bytes == b"before\nfine\nafter\n"
        skipped = [line for line in result.stderr.splitlines() if line.startswith("skipped: ")]
        assert f"begins at {first + 1}" in skipped[-2]
        assert f"begins at {second + 2}" in skipped[-1]
    result = run(cluster, "read", shard, "--skip-unreadable", "--count", "2")
    assert result.stdout_bytes == b"before\nfine\n"


def test_a_cluster_that_is_down_is_not_waited_for(tmp_path: Path):
    with local_cluster(tmp_path) as cluster:
        told = refused(cluster, "append", "orders", "x", code=exit_codes.UNAVAILABLE)
        assert "`shardlog local up` makes one" in told
        cluster.layout.cluster_file.write_text(
            '{"format": 1, "coordinator": "127.0.0.1:1", "nodes": []}'
        )
        told = refused(cluster, "read", "orders", code=exit_codes.UNAVAILABLE)
        assert "is down: `shardlog local up` starts it" in told


def test_completion_fails_silently_where_there_is_no_cluster(tmp_path: Path):
    asked = {
        "_SHARDLOG_COMPLETE": "bash_complete",
        "COMP_WORDS": "shardlog read ",
        "COMP_CWORD": "2",
    }
    environment = {**os.environ, "SHARDLOG_DIR": str(tmp_path), **asked}
    done = subprocess.run([SHARDLOG], env=environment, capture_output=True, check=True)
    assert (done.stdout + done.stderr).strip() == b""
