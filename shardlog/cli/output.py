"""What commands print: a table for a person, JSON or YAML for a program.

On a terminal a table has colours; in a pipe it is bare columns that `awk` can split.  `wide` is the
same table with more columns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import rich_click as click

F = TypeVar("F", bound=Callable[..., Any])
Json = Any
"""What `json.loads` gives."""
Row = Sequence[object]

FORMATS = ("table", "wide", "json", "yaml")
COLOURS = {
    "STEADY": "green", "yes": "green", "running": "green", "LEADER": "bold green",
    "CREATING": "yellow", "ELECTION": "yellow", "DELETING": "yellow", "starting": "yellow",
    "paused": "yellow", "no": "red", "down": "red", "HALTED": "bold red",
}  # fmt: skip


def output_option(command: F) -> F:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="For a person, or for a program.",
    )(command)


def is_for_programs(output: str) -> bool:
    return output in ("json", "yaml")


def print_value(value: Json, output: str) -> None:
    """As JSON or YAML."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False), nl=False)
    else:
        click.echo(json.dumps(value, indent=2))


def print_table(columns: str, rows: Sequence[Row], indent: str = "") -> None:
    """`columns` are names, apart by blanks; one that ends in `>` is aligned to the right."""
    names = [name.rstrip(">").replace("_", " ") for name in columns.split()]
    right = [name.endswith(">") for name in columns.split()]
    cells = [[cell_text(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(names, right, cells, indent)
    else:
        _print_bare(names, right, cells, indent)


def cell_text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    on_terminal = sys.stdout.isatty()
    if isinstance(value, int):
        return f"{value:,}" if on_terminal else str(value)
    if isinstance(value, list | tuple):
        return (", " if on_terminal else ",").join(map(str, value)) or "-"
    return str(value)


def _print_bare(
    names: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]], indent: str
) -> None:
    titles = [name.upper() for name in names]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        click.echo((indent + "   ".join(padded)).rstrip())


def _print_stacked(names: Sequence[str], rows: Sequence[Sequence[str]], indent: str) -> None:
    """What is wider than the terminal: a row as lines, the first cell as their heading."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    for row in rows:
        table = Table.grid(padding=(0, 2), pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, cell in zip(names[1:], row[1:], strict=True):
            table.add_row(f"{indent}  {name.upper()}", Text(cell, style=COLOURS.get(cell, "")))
        Console().print(Text(indent + row[0], style="bold"))
        Console().print(table)


def _print_rich(
    names: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]], indent: str
) -> None:
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    width = Console().width - len(indent)
    natural = sum(max(map(len, column)) for column in zip(names, *rows, strict=True))
    if natural + 2 * len(names) > width:
        _print_stacked(names, rows, indent)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, to_right in zip(names, right, strict=True):
        justify: Literal["left", "right"] = "right" if to_right else "left"
        table.add_column(name.upper(), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    Console().print(Padding(table, (0, 0, 0, len(indent))))
