"""Who is running is a question to the kernel, not to a number in a file."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardlog.local.pid_file import PidFile, start
from shardlog.local.stopping import await_ends, stop_processes

WAITS = (sys.executable, "-c", "import time; time.sleep(600)")
HEEDLESS = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('heedless', flush=True); time.sleep(600)",
)

STARTER = """
import os, pathlib, sys, grpc
from shardlog.local.pid_file import PidFile, start, start_orphan
server = grpc.server(__import__("concurrent.futures").futures.ThreadPoolExecutor())
channel = grpc.insecure_channel(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
server.start()
grpc.channel_ready_future(channel).result(30)
here = pathlib.Path(sys.argv[1])
says = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)")
for name, begin in (("child", start), ("orphan", start_orphan)):
    begin(PidFile(here / name).take(), says, os.environ, here / f"{name}.log")
os._exit(0)
"""
"""With a channel that is in use, as in any process that has called a node."""


@pytest.fixture
def pid_file(tmp_path: Path) -> PidFile:
    return PidFile(tmp_path / "it.pid")


@pytest.fixture
def child(pid_file: PidFile, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    held = pid_file.take()
    assert held is not None
    started = start(held, WAITS, os.environ, tmp_path / "log")
    while pid_file.pid() is None:
        assert started.poll() is None
    yield started
    started.kill()
    started.wait()


def test_nobody(pid_file: PidFile):
    assert pid_file.pid() is None
    assert not pid_file.is_held()
    assert pid_file.open_process() is None
    assert not pid_file.signal(signal.SIGKILL)


def test_a_process_is_found_and_cannot_be_started_twice(pid_file: PidFile, child):
    assert pid_file.pid() == child.pid
    assert pid_file.take() is None


def test_looking_takes_nothing(pid_file: PidFile, tmp_path: Path):
    held = pid_file.take()
    assert held is not None
    os.close(held)
    assert not pid_file.is_held()
    again = pid_file.take()
    assert again is not None
    os.close(again)


def test_a_killed_process_is_gone_with_its_lock(pid_file: PidFile, child):
    process = pid_file.open_process()
    assert process is not None
    assert pid_file.signal(signal.SIGKILL)
    assert await_ends({"it": process}, 10_000) == []
    os.close(process)
    child.wait()
    assert not pid_file.is_held()
    assert pid_file.path.read_text().strip() == str(child.pid)


def test_the_number_of_a_stranger_is_not_believed(pid_file: PidFile):
    pid_file.path.write_text(f"{os.getpid()}\n")
    assert pid_file.pid() is None
    assert not pid_file.signal(signal.SIGKILL)


def test_one_who_is_being_started_is_there_without_a_number(pid_file: PidFile):
    held = pid_file.take()
    assert held is not None
    assert pid_file.is_held()
    assert pid_file.pid() is None
    assert pid_file.open_process() is None
    os.close(held)


def test_stopping_asks_first_also_who_is_paused(pid_file: PidFile, child):
    pid_file.signal(signal.SIGSTOP)
    process = pid_file.open_process()
    assert process is not None
    assert stop_processes({"it": process}, 10_000) == []
    os.close(process)
    assert child.wait() == -signal.SIGTERM


def test_who_starts_may_have_threads_of_grpc(tmp_path: Path):
    """A fork of such a process may hang or abort before it becomes the program."""
    starter = subprocess.run(
        [sys.executable, "-c", STARTER, str(tmp_path)], timeout=60, capture_output=True, check=True
    )
    assert b"fork" not in starter.stderr
    for name in ("child", "orphan"):
        pid_file = PidFile(tmp_path / name)
        while not (pid_file.pid() and (tmp_path / f"{name}.log").read_text() == "here\n"):
            assert pid_file.is_held()
        assert pid_file.signal(signal.SIGKILL)


def test_S22_a_lock_for_reading_makes_no_stranger_the_process(pid_file: PidFile):
    with subprocess.Popen(WAITS) as stranger:
        try:
            pid_file.path.write_text(f"{stranger.pid}\n")
            reader = os.open(pid_file.path, os.O_RDONLY)
            lock = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(reader, fcntl.F_OFD_SETLK, lock)
            assert not pid_file.is_held()
            assert pid_file.pid() is None
            assert not pid_file.signal(signal.SIGKILL)
            assert stranger.poll() is None
            os.close(reader)
        finally:
            stranger.kill()


def test_who_does_not_stop_is_killed(pid_file: PidFile, tmp_path: Path):
    held = pid_file.take()
    assert held is not None
    log = tmp_path / "log"
    heedless = start(held, HEEDLESS, os.environ, log)
    while "heedless" not in log.read_text():
        assert heedless.poll() is None
    process = pid_file.open_process()
    assert process is not None
    assert stop_processes({"it": process}, 100) == ["it"]
    os.close(process)
    assert heedless.wait() == -signal.SIGKILL
