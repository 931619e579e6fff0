"""`shardlog local status`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli import exit_codes
from shardlog.cli.local_cluster import directory_option, failures_as_exit_codes
from shardlog.cli.output import is_for_programs, output_option, print_table, print_value

if TYPE_CHECKING:
    from shardlog.local.layout import Layout
    from shardlog.local.processes import ProcessStatus


@click.command()
@directory_option
@output_option
@click.pass_context
def status(ctx: click.Context, layout: Layout, output: str) -> None:
    """Show the processes of the cluster; exit status 8 unless all of them run."""
    with failures_as_exit_codes():
        from shardlog.local.cluster_file import load
        from shardlog.local.processes import statuses

        cluster, found = load(layout), statuses(layout)
    if is_for_programs(output):
        processes = [asdict(each) | {"addresses": list(each.addresses)} for each in found]
        told = {"directory": str(layout.directory), "url": cluster.url, "processes": processes}
        print_value(told, output)
    else:
        click.echo(f"{layout.directory}   {cluster.url}")
        columns = "name state pid> memory> starts>"
        rows = [_row(each) for each in found]
        if output == "wide":
            columns += " listens last_end"
            rows = [
                (*row, each.addresses, each.ended) for row, each in zip(rows, found, strict=True)
            ]
        print_table(columns, rows)
    if not all(each.is_running for each in found):
        ctx.exit(exit_codes.UNAVAILABLE)


def _row(each: ProcessStatus) -> tuple[object, ...]:
    memory = f"{each.resident_bytes / (1 << 20):.0f} MiB" if each.resident_bytes else None
    return each.name, each.state, str(each.pid or "-"), memory, each.starts
