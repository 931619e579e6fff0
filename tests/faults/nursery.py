"""Starts programs quickly: forks them off a process that has imported all they need.

A hundred restarts of Python, gRPC and the rest would take a core two minutes.  From its first own
line on such a process is like any other: its pid, its memory, its files and sockets are its own,
and nobody watches it.  It is asked over a pipe, a line of JSON for each start, and answers the pid.

With a mutant of the simulator all that it starts lacks a rule: a judge must notice.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

MODULES = ("shardlog_node.main", "shardlog_node.process", "shardlog.local.coordinator")
BUG = 70
END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG: whatever becomes of the tests, nothing is left running."""


class Nursery:
    """The asking side."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    @classmethod
    @contextmanager
    def open(cls, mutant: str = "") -> Iterator[Nursery]:
        tests = Path(__file__).resolve().parent.parent
        path = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
        child = subprocess.Popen(
            (sys.executable, "-m", "faults.nursery", *([mutant] if mutant else [])),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        )
        with child:
            try:
                yield cls(child)
            finally:
                child.kill()

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """A program of the form `python -m module arguments`; its pid."""
        python, dash_m, module, *arguments = command
        assert (python, dash_m) == (sys.executable, "-m"), command
        assert module in MODULES, command
        asked = {
            "module": module,
            "arguments": arguments,
            "environment": dict(environment),
            "log": str(log),
        }
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(asked).encode() + b"\n")
        self._child.stdin.flush()
        return int(self._child.stdout.readline())


# --- the asked side ------------------------------------------------------------------------------


def serve() -> None:
    for module in MODULES:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            become(json.loads(line))
        print(pid, flush=True)


def become(asked: dict[str, Any]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
    os.setsid()
    os.chdir("/")
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    os.closerange(3, max(log, nothing) + 1)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = [asked["module"], *asked["arguments"]]
    code = BUG
    try:
        importlib.import_module(asked["module"]).main()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else BUG
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    with ExitStack() as stack:
        for mutant in sys.argv[1:]:
            from shardlog.sim.mutants import MUTANTS

            stack.enter_context(MUTANTS[mutant].applied())
        serve()
