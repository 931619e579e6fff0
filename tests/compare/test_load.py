"""Both load programs do the same: one question, one kind of answer, whoever is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.compare.etcd import Etcd
from bench.compare.shardlog import Shardlog
from bench.compare.system import Failed, Running, System

APPENDED = {"records", "records_all", "seconds", "client_cpu_s"}
OFFERED = {"due", "sent", "failed", "rate", "seconds", "latencies_us", "records_all", "tail_us"}


def ask(running: Running, pattern: str, **given: Any) -> Any:
    """With the patience of a machine that others use, too."""
    return running.ask(pattern, log="bench", warm_up=0.1, timeout_s=120, **given)


def try_all(system: System, directory: Path) -> None:
    with system.running(directory, 1) as running:
        running.create("bench")
        before = running.used()
        lone = ask(running, "lone", seconds=0.5)
        assert lone.keys() == APPENDED | {"latencies_us"}
        assert lone["records"] == len(lone["latencies_us"]) <= lone["records_all"]
        offered = ask(running, "offered", seconds=0.5, rate=100, tail=True)
        assert offered.keys() == OFFERED | {"client_cpu_s"}
        assert offered["sent"] == offered["due"] == len(offered["latencies_us"]) == 50
        assert len(offered["tail_us"]) == 50
        saturated = ask(running, "saturated", seconds=0.5)
        assert saturated.keys() == APPENDED
        running.forget_pages()
        # What was offered has a warm-up as well, and one record before all.
        written = lone["records_all"] + 61 + saturated["records_all"]
        read = ask(running, "read", seconds=30, count=written)
        assert read["records"] >= written
        assert read["bytes"] == 128 * read["records"]
        assert running.used().cpu_s > before.cpu_s
        with pytest.raises(Failed, match="read"):
            running.ask("read", log="no such log", seconds=1)


def test_shardlog(tmp_path: Path):
    try_all(Shardlog(), tmp_path)


@pytest.mark.needs("go")
def test_etcd_by_the_program_in_go(tmp_path: Path):
    try_all(Etcd(), tmp_path)
