"""The `shardlog` command.

Each command group lives in the module of its own name and is imported when it is first asked for,
so that a command pays only for the libraries it uses. Every way out of a command becomes one of
the codes in `exit_codes`, here and nowhere else.
"""

import io
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import rich_click as click
from click.exceptions import Exit

from shardlog import __version__
from shardlog.cli import exit_codes
from shardlog.cli.failures import CommandFailed, MissingExtra
from shardlog.extras import remedy

COMMAND_GROUPS = (
    "demo", "local", "shard", "append", "read", "tail", "snapshot", "ops", "status", "storage",
    "sim", "bench", "spark", "completion",
)  # fmt: skip


class ShardlogGroup(click.RichGroup):
    """Finds command groups by module name and translates exceptions to exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMAND_GROUPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMAND_GROUPS:
            return None
        command: click.Command = getattr(import_module(f"shardlog.cli.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        write_wholly()
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(exit_codes.INTERRUPTED)
        except CommandFailed as failure:
            failure.show()
            ctx.exit(failure.exit_code)
        except (Exit, BrokenPipeError):
            raise
        except click.ClickException as error:
            show_usage_error(error)
            ctx.exit(exit_codes.USAGE)
        except ModuleNotFoundError as missing:
            if told := remedy(missing):
                MissingExtra(told).show()
                ctx.exit(MissingExtra.exit_code)
            traceback.print_exc()
            ctx.exit(exit_codes.CRASH)
        except Exception:
            traceback.print_exc()
            ctx.exit(exit_codes.CRASH)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            show_usage_error(error)
            raise Exit(exit_codes.USAGE) from error


def show_usage_error(error: click.ClickException) -> None:
    """In one line, with a command that is spelt almost so, and how to get help."""
    text = error.format_message()
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx else "shardlog"
    if ctx and isinstance(ctx.command, ShardlogGroup) and text.startswith("No such command"):
        meant = get_close_matches(text.split("'")[1], COMMAND_GROUPS, 1)
        text += f" Did you mean {meant[0]!r}?" if meant else ""
    click.echo(f"shardlog: {text}  ({path} --help)".replace("\n", " "), err=True)


def write_wholly() -> None:
    """Where Python is told not to buffer it loses what a signal in the middle of a write left over.

    A buffer knows how much of it was written.
    """
    told = sys.stdout
    if isinstance(told, io.TextIOWrapper) and isinstance(told.buffer, io.RawIOBase):
        sys.stdout = open(  # noqa: SIM115 - for as long as the command runs
            told.fileno(), "w", 1, encoding=told.encoding, errors=told.errors, closefd=False
        )


@click.group(
    cls=ShardlogGroup,
    name="shardlog",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="shardlog")
def main() -> None:
    """A replicated, sharded log.

    Exit status: 0 ok, 2 usage, 3 crash, 4 safety, 5 liveness, 6 a mutant survived, 7 damaged files,
    8 the cluster is unavailable, 9 the cluster refused, 10 a record cannot be appended, 130
    interrupted.
    """
