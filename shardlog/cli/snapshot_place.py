"""What the commands about snapshots share: the place, its failures, and a bar on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from shardlog.cli import exit_codes
from shardlog.cli.client import DamagedLog, failures_as_exit_codes
from shardlog.cli.failures import BadUsage, CommandFailed
from shardlog.cli.places import Moment

if TYPE_CHECKING:
    from shardlog.snapshots.archive import Archive
    from shardlog.snapshots.manifest import Manifest

F = TypeVar("F", bound=Callable[..., Any])


class DestinationDown(CommandFailed):
    """Where snapshots are kept gave no answer."""

    exit_code = exit_codes.UNAVAILABLE


class DestinationSaidNo(CommandFailed):
    """It said no, or there is no such thing."""

    exit_code = exit_codes.REFUSED


url_argument = click.argument("place", metavar="URL")


def id_option(command: F) -> F:
    """Gives a command the argument `snapshot_id`."""
    return click.option(
        "--snapshot",
        "snapshot_id",
        metavar="ID",
        help="Which one.  [default: the newest of "
        "what led; of any node (--node) only if there is no other]",
    )(command)


def older_option(command: F) -> F:
    """Gives a command the argument `older_ms`."""
    return click.option(
        "--older-than", "older_ms", type=Moment(), metavar="TIME",
        help="Delete only what was made before: 2030-01-31T12:00:00Z, 7d (ago); --keep N are kept "
        "however old they are.",
    )(command)  # fmt: skip


@contextmanager
def snapshot_failures() -> Iterator[None]:
    """Those of the client too."""
    from shardlog.snapshots import failures

    with failures_as_exit_codes():
        try:
            yield
        except failures.BadDestination as failure:
            raise BadUsage(str(failure)) from failure
        except failures.Damaged as failure:
            raise DamagedLog(str(failure)) from failure
        except failures.DestinationUnavailable as failure:
            raise DestinationDown(str(failure)) from failure
        except failures.SnapshotFailure as failure:
            raise DestinationSaidNo(str(failure)) from failure


def archive_of(shard: str, place: str, *, make: bool = False) -> Archive:
    from shardlog.snapshots.archive import Archive
    from shardlog.snapshots.destination import Destination

    return Archive(Destination(place, make=make), shard)


def chosen(archive: Archive, snapshot_id: str | None) -> Manifest:
    return archive.newest() if snapshot_id is None else archive.manifest(snapshot_id)


@contextmanager
def bar(what: str, *, is_bytes: bool) -> Iterator[Callable[[float, float], None]]:
    """On a terminal, how far it is: (done, of what)."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    counted = DownloadColumn() if is_bytes else TaskProgressColumn()
    columns = (TextColumn(what), BarColumn(), counted, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
