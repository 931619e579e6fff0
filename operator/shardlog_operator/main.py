"""`shardlog-operator`: settings in, a process that runs until it is told to stop.

Every way out becomes one exit status here, and every failure that a person can do something about
one line on standard error.  The numbers are those of the `shardlog` command.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from shardlog.extras import required

with required("shardlog-operator", "operator"):
    from shardlog.process.ends import Exit, run_program, told
    from shardlog.process.settings import BadSettings
    from shardlog_operator.settings import OperatorSettings, load

NAME = "shardlog-operator"


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> Exit:
    """Until the process has stopped."""
    return run_program(NAME, load, _operated, arguments)


def _operated(settings: OperatorSettings) -> Exit:
    """What takes long to import is imported here, when it is known to be needed."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its core writes to the terminal as it likes
    import uvloop

    from shardlog.metadata.failures import MetadataFailure
    from shardlog.process.logs import configure
    from shardlog.transport.failures import Unreachable
    from shardlog_operator.kube import ApiFailure
    from shardlog_operator.process import operate

    configure(settings.log_level, settings.log_format)
    # It tells of every event it has handled, with all its settings.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    ends: list[Exit] = []
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(operate(settings))
    except* BadSettings as failures:
        ends.append(told(NAME, Exit.USAGE, failures.exceptions[0]))
    except* (MetadataFailure, ApiFailure, Unreachable) as failures:
        ends.append(told(NAME, Exit.UNAVAILABLE, failures.exceptions[0]))
    return ends[0] if ends else Exit.OK


if __name__ == "__main__":
    main()
