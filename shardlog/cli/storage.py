"""`shardlog storage`: looking at a replica's disk.  Each command has a module of its own."""

from __future__ import annotations

import rich_click as click

from shardlog.cli.storage_inspect import inspect
from shardlog.cli.storage_verify import verify


@click.group()
def storage() -> None:
    """Look at the files of a replica, and never change them.

    A replica that is running goes on writing meanwhile; stop its node for an answer that lasts.
    """


storage.add_command(inspect)
storage.add_command(verify)
