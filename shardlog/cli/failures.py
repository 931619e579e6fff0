"""How a command fails: one line on the error output, and the exit code that goes with it.

Everything else that leaves a command is a crash, and `main` shows it as one.
"""

from __future__ import annotations

from typing import IO, Any

import rich_click as click

from shardlog.cli import exit_codes
from shardlog.cli.escaping import escaped


class CommandFailed(click.ClickException):
    """Base of all; the message is one line for a person."""

    def show(self, file: IO[Any] | None = None) -> None:
        text = escaped(self.format_message(), "\n")
        click.echo(f"shardlog: {text}", file=file, err=file is None)


class ClusterUnavailable(CommandFailed):
    """No answer, or not in time: what was asked for may be done, or not."""

    exit_code = exit_codes.UNAVAILABLE


class ClusterRefused(CommandFailed):
    """The cluster said no; `kind` is for programs."""

    exit_code = exit_codes.REFUSED

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class MissingExtra(CommandFailed):
    """A library is not installed; the message names the extra that has it."""

    exit_code = exit_codes.USAGE


class BadUsage(CommandFailed):
    """What was asked for makes no sense; nothing was done."""

    exit_code = exit_codes.USAGE
