"""What all `shardlog local` commands share: the directory, and how its failures are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from shardlog.cli.failures import BadUsage, ClusterRefused, ClusterUnavailable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from shardlog.local.layout import Layout

F = TypeVar("F", bound=Callable[..., Any])


def directory_option(command: F) -> F:
    """Gives a command the argument `layout`."""
    return click.option(
        "--dir",
        "layout",
        metavar="DIR",
        envvar="SHARDLOG_DIR",
        callback=_layout,
        help="Where the cluster is.  [env: SHARDLOG_DIR; default: ~/.shardlog/local]",
    )(command)


def _layout(ctx: click.Context, parameter: click.Parameter, directory: str | None) -> Layout:
    from shardlog.local.layout import Layout

    return Layout.of(directory)


@contextmanager
def failures_as_exit_codes() -> Iterator[None]:
    from shardlog.local import failures

    try:
        yield
    except (failures.CannotChange, failures.NoSuchProcess) as failure:
        raise BadUsage(str(failure)) from failure
    except failures.NotRunning as failure:
        raise ClusterRefused(str(failure), type(failure).__name__) from failure
    except failures.LocalFailure as failure:
        raise ClusterUnavailable(str(failure)) from failure


def complete_process(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from shardlog.local.failures import LocalFailure
    from shardlog.local.layout import Layout
    from shardlog.local.processes import names

    try:
        found = names(ctx.params.get("layout") or Layout.of(None))
    except LocalFailure:
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]
