"""Tables: ruled on a terminal, bare columns in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import rich_click as click

Row = Sequence[str]
STATE_COLOURS = {"damaged": "red", "unreadable": "red", "lost": "red", "corrupt": "red",
                 "fault": "red", "left over": "yellow", "blank": "yellow"}  # fmt: skip


def show(title: str, columns: str, rows: Sequence[Row]) -> None:
    """`columns` are names, apart by blanks; one that ends in `>` is aligned to the right."""
    names = [name.rstrip(">").replace("_", " ") for name in columns.split()]
    right = [name.endswith(">") for name in columns.split()]
    if sys.stdout.isatty():
        _ruled(title, names, right, rows)
    else:
        _bare(title, names, right, rows)


def _bare(title: str, names: Row, right: Sequence[bool], rows: Sequence[Row]) -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    click.echo(f"\n{title}")
    for row in (names, *rows):
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        click.echo(f"  {'  '.join(cells)}".rstrip())


def _ruled(title: str, names: Row, right: Sequence[bool], rows: Sequence[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name, to_right in zip(names, right, strict=True):
        table.add_column(name, justify="right" if to_right else "left")
    for row in rows:
        table.add_row(*(Text(cell, style=STATE_COLOURS.get(cell, "")) for cell in row))
    Console().print(table)
