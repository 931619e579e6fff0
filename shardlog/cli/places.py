"""Where in a log to start: an offset, or a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from shardlog.cli.failures import BadUsage

if TYPE_CHECKING:
    from shardlog.client import Start

F = TypeVar("F", bound=Callable[..., Any])
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_SECONDS = re.compile(r"@(\d+(?:\.\d+)?)")


class Moment(click.ParamType[int]):
    """Milliseconds since 1970."""

    name = "time"

    def convert(
        self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if ago := _AGO.fullmatch(value):
            return max(0, int(time.time() * 1000 - float(ago[1]) * UNITS_MS[ago[2]]))
        if seconds := _SECONDS.fullmatch(value):
            return int(float(seconds[1]) * 1000)
        try:
            return max(0, int(datetime.fromisoformat(value).timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is no time: 2030-01-31T12:00:00Z, 5m (ago) or @1900000000",
                parameter,
                ctx,
            )


class Offset(click.IntRange):
    """What errors call an offset."""

    name = "offset"


def from_option(command: F) -> F:
    """Gives a command the argument `start`."""
    return click.option(
        "--from",
        "start",
        type=Offset(min=0),
        metavar="OFFSET",
        help="Start with this offset.",
    )(command)


def at_option(command: F) -> F:
    """Gives a command the argument `start_ms`."""
    return click.option(
        "--from-time",
        "start_ms",
        type=Moment(),
        metavar="TIME",
        help="Start with what was appended then or later: 2030-01-31T12:00:00Z, 5m (ago), "
        "@SECONDS since 1970.",
    )(command)


def place(start: int | None, start_ms: int | None) -> Start:
    """Without either: wherever the log begins now."""
    from shardlog.client import FIRST, Timestamp

    if start is not None and start_ms is not None:
        raise BadUsage("--from and --from-time exclude each other")
    if start_ms is not None:
        return Timestamp(start_ms)
    return FIRST if start is None else start
