"""Asks a person before something is dropped for good."""

from __future__ import annotations

import sys

import rich_click as click

from shardlog.cli import exit_codes
from shardlog.cli.failures import BadUsage, CommandFailed


class NotConfirmed(CommandFailed):
    """The person who was asked did not say yes."""

    exit_code = exit_codes.INTERRUPTED


def confirm(question: str) -> None:
    """Ask on the error output, and end the command unless the answer is yes.

    Raises `BadUsage`, which names `--yes`, where the input is no terminal: nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise BadUsage(f"{question} Nobody can be asked without a terminal: --yes answers it")
    if not click.confirm(question, err=True):
        raise NotConfirmed("not confirmed: nothing was done")
