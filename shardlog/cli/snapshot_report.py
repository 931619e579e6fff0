"""`--report FILE`: how a command about snapshots ended, for a program that sees only this file.

On Kubernetes it is the termination message of a container, which the operator reads from the pod's
status.  A termination message is cut off at 4096 bytes, and half a JSON document says nothing, so
the report is short whatever happened.  A failure is told by the name of its type: which kind it is
must not have to be guessed from words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from shardlog.cli.failures import BadUsage, CommandFailed

F = TypeVar("F", bound=Callable[..., Any])
Json = Any
MESSAGE_MAX = 1000
NAMES_MAX = 40
"""Of snapshots that were deleted, the newest: 30 bytes each."""


def report_option(command: F) -> F:
    """Gives a command the argument `report`."""
    return click.option(
        "--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        help="Write there how it ended, as one short line of JSON.",
    )(command)  # fmt: skip


@contextmanager
def reported(path: Path | None) -> Iterator[dict[str, Json]]:
    """Whatever is put into the value is the report; a failure is one by itself."""
    found: dict[str, Json] = {}
    try:
        yield found
    except CommandFailed as failure:
        reason = type(failure.__cause__ or failure).__name__
        message = failure.format_message()[:MESSAGE_MAX]
        _write(path, {"failed": reason, "message": message})
        raise
    _write(path, found)


def names_told(names: tuple[str, ...] | list[str]) -> list[str]:
    return list(names)[-NAMES_MAX:]


def _write(path: Path | None, report: Json) -> None:
    if path is None:
        return
    try:
        path.write_text(json.dumps(report, separators=(",", ":")))
    except OSError as failure:
        raise BadUsage(f"--report {path}: {failure.strerror}") from failure
