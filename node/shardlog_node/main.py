"""`shardlog-node`: settings in, a process that runs until it is told to stop.

Every way out becomes one exit status here, and every failure that a person can do something about
one line on standard error.  The numbers are those of the `shardlog` command.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
from collections.abc import Sequence

from shardlog.extras import required

with required("shardlog-node", "node"):
    from shardlog.process.ends import Exit, run_program, told
    from shardlog.process.settings import BadSettings
    from shardlog_node.memory import keep_freed
    from shardlog_node.settings import NodeSettings, load

NAME = "shardlog-node"

SWITCH_INTERVAL_S = 0.0005
"""A thread that comes back from `fdatasync` asks for the interpreter, and gets it only when the
loop's thread has held it for so long; Python's own 5 ms would be added to every commit."""

OTHER_FILES = 256
"""Descriptors for everything but segments and connections."""


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> Exit:
    """Until the process has stopped."""
    return run_program(NAME, load, _served, arguments)


def _served(settings: NodeSettings) -> Exit:
    """What takes long to import is imported here, when it is known to be needed."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its core writes to the terminal as it likes
    import uvloop

    from shardlog.process.logs import configure
    from shardlog.storage import failures as storage
    from shardlog.transport.failures import Unreachable
    from shardlog_node.process import serve

    gc.freeze()  # what was imported stays: to look through it all again would take tens of ms
    keep_freed()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_files(settings.open_files_max + settings.connections_max + OTHER_FILES)
    configure(settings.log_level, settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings))
    except (BadSettings, storage.NotPermitted, storage.ReadOnlyVolume) as failure:
        return told(NAME, Exit.USAGE, failure)
    except (storage.Damaged, storage.WrongFormat, storage.WrongIdentity) as failure:
        return told(NAME, Exit.DAMAGED, failure)
    except (storage.StorageFailure, Unreachable) as failure:
        return told(NAME, Exit.UNAVAILABLE, failure)
    return Exit.OK


def _allow_files(number: int) -> None:
    """As many open files as the settings speak of, if the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    main()
