"""`shardlog-node`: settings in, a process that runs until it is told to stop.

Every way out becomes one exit status here, and every failure that a person can do something about
one line on standard error.  The numbers are those of the `shardlog` command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum

from shardlog_node.settings import BadSettings, load

SWITCH_INTERVAL_S = 0.0005
"""A thread that comes back from `fdatasync` asks for the interpreter, and gets it only when the
loop's thread has held it for so long; Python's own 5 ms would be added to every commit."""


class Exit(IntEnum):
    OK = 0
    USAGE = 2
    CRASH = 3
    DAMAGED = 7
    UNAVAILABLE = 8


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> Exit:
    """Until the process has stopped."""
    try:
        settings = load(arguments)
    except BadSettings as failure:
        return _refused(Exit.USAGE, failure)
    raise NotImplementedError(settings.name)


def _refused(status: Exit, failure: Exception) -> Exit:
    print(f"shardlog-node: {failure}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
