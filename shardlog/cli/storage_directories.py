"""The argument DIR of the storage commands: a replica's directory, or one that holds several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import rich_click as click
from click.exceptions import Exit

from shardlog.cli import exit_codes

if TYPE_CHECKING:
    from shardlog.storage.inspection import Inspection


def inspections(path: str) -> list[Inspection]:
    """One for each replica, at least one."""
    from shardlog.storage.inspection import Inspection, replica_directories
    from shardlog.storage.real_files import RealFiles

    if not Path(path).is_dir():
        why = "not a directory" if Path(path).exists() else "no such directory"
        leave(f"{path}: {why}")
    files = RealFiles()
    directories = replica_directories(files, path.rstrip("/") or "/")
    if not directories:
        leave(f"{path}: not a replica's directory, and none is in it")
    return [Inspection(files, directory) for directory in directories]


@contextmanager
def refusals() -> Iterator[None]:
    """What keeps the files from being read at all is told in one line."""
    from shardlog.storage.failures import StorageFailure

    try:
        yield
    except StorageFailure as failure:
        leave(str(failure))


def leave(why: str) -> NoReturn:
    click.echo(f"shardlog: {why}", err=True)
    raise Exit(exit_codes.USAGE)
