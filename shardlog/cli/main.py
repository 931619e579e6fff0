"""The `shardlog` command.

Each command group lives in the module of its own name and is imported when it is first asked for,
so that a command pays only for the libraries it uses. Every way out of a command becomes one of
the codes in `exit_codes`, here and nowhere else.
"""

import io
import sys
import traceback
from importlib import import_module
from typing import Any

import rich_click as click
from click.exceptions import Exit

from shardlog import __version__
from shardlog.cli import exit_codes
from shardlog.cli.failures import CommandFailed

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
        except (click.UsageError, Exit, BrokenPipeError):
            raise
        except click.ClickException as error:
            raise click.UsageError(error.format_message()) from error
        except Exception:
            traceback.print_exc()
            ctx.exit(exit_codes.CRASH)


def write_wholly() -> None:
    """Where Python is told not to buffer it loses what a signal in the middle of a write left over.

    A buffer knows how much of it was written.
    """
    told = sys.stdout
    if isinstance(told, io.TextIOWrapper) and isinstance(told.buffer, io.RawIOBase):
        sys.stdout = open(  # noqa: SIM115 - for as long as the command runs
            told.fileno(), "w", 1, encoding=told.encoding, errors=told.errors, closefd=False
        )


@click.group(cls=ShardlogGroup, name="shardlog")
@click.version_option(__version__, prog_name="shardlog")
def main() -> None:
    """A replicated, sharded log.

    Exit status: 0 ok, 2 usage, 3 crash, 4 safety, 5 liveness, 6 a mutant survived, 7 damaged files,
    8 the cluster is unavailable, 9 the cluster refused, 10 a record cannot be appended, 130
    interrupted.
    """
