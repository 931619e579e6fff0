"""`shardlog snapshot`: create, list, verify, query, delete and restore snapshots of shards."""

from __future__ import annotations

import rich_click as click

from shardlog.cli.snapshot_create import create
from shardlog.cli.snapshot_delete import delete
from shardlog.cli.snapshot_list import list_snapshots
from shardlog.cli.snapshot_query import query
from shardlog.cli.snapshot_restore import restore
from shardlog.cli.snapshot_verify import verify


@click.group()
def snapshot() -> None:
    """Keep copies of shards elsewhere, and make shards of them.

    URL is where snapshots are kept, of any number of shards: file:///DIRECTORY, s3://BUCKET/PREFIX,
    gs://…, az://…; credentials come from the environment, as for other tools.
    """


snapshot.add_command(create)
snapshot.add_command(list_snapshots)
snapshot.add_command(verify)
snapshot.add_command(query)
snapshot.add_command(delete)
snapshot.add_command(restore)
