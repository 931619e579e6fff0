"""`shardlog snapshot query`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from shardlog.cli.failures import BadUsage
from shardlog.cli.output import is_for_programs, output_option, print_table, print_value
from shardlog.cli.snapshot_place import id_option, snapshot_failures, url_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from shardlog.snapshots.arrow import SnapshotScan


@click.command()
@url_argument
@click.argument("sql")
@id_option
@click.option("--columns", metavar="NAMES", help="Only these, with commas between: what is not "
              "named is not made.  [default: all that SQL may name]")  # fmt: skip
@click.option("--skip-lost", is_flag=True, help="Leave out records that were given up.")
@output_option
def query(
    place: str, sql: str, snapshot_id: str | None, columns: str | None, skip_lost: bool, output: str
) -> None:
    """Ask snapshots at URL with SQL: each shard is a table, read by DuckDB on this machine.

    Columns are key, value, shard, offset, epoch, timestamp, headers and appended. Values are bytes:
    decode(value) makes text of them, and decode(value)::JSON what it holds. Names of shards that
    are no words stand in double quotes.
    """
    import duckdb

    with snapshot_failures():
        from shardlog.snapshots.arrow import scan_snapshot
        from shardlog.snapshots.arrow_columns import TYPES

        names = tuple(columns.split(",")) if columns else tuple(TYPES)
        connection = duckdb.connect(config={"python_enable_replacements": False})
        connection.execute("SET TimeZone = 'UTC'")
        scans: list[_Remembering] = []
        try:
            for shard in connection.get_table_names(sql):
                scan = scan_snapshot(
                    place, shard, snapshot=snapshot_id, columns=names, skip_lost=skip_lost
                )
                assert scan.manifest, "it is there, or this fails before anything is read"
                scans.append(_Remembering(scan))
                connection.register(shard, scans[-1])
            relation = connection.sql(sql)
            if relation is None:
                raise BadUsage("it has no rows to show: SELECT is meant")
            found: pa.Table = relation.to_arrow_table()
        except duckdb.Error as failure:
            for each in scans:
                if each.failure is not None:
                    raise each.failure from None
            raise BadUsage(str(failure).splitlines()[0]) from failure
    rows = [_plain(row) for row in found.to_pylist()]
    if is_for_programs(output):
        print_value({"rows": rows}, output)
    else:
        header = " ".join(name.replace(" ", "_") for name in found.column_names)
        print_table(header, [tuple(row.values()) for row in rows])


class _Remembering:
    """A scan as DuckDB takes it, which knows what went wrong: DuckDB tells it as text."""

    def __init__(self, scan: SnapshotScan) -> None:
        self.failure: Exception | None = None
        self._scan = scan

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self._scan.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._scan.batches()
        except Exception as failure:
            self.failure = failure
            raise


def _plain(cell: Any) -> Any:
    """As tables and JSON have it: bytes as text where they are UTF-8, times as ISO 8601."""
    if isinstance(cell, bytes):
        return cell.decode(errors="backslashreplace")
    if isinstance(cell, list | tuple):
        return [_plain(each) for each in cell]
    if isinstance(cell, dict):
        return {name: _plain(each) for name, each in cell.items()}
    if cell is None or isinstance(cell, bool | int | float | str):
        return cell
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
