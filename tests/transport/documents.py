"""Tables in the documents, to be compared with the code."""

import re
import struct
from itertools import takewhile
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def table(document: str, heading: str) -> list[dict[str, str]]:
    """The first table under a heading, a row as its cells by column."""
    _, found, rest = document.partition(f"# {heading}\n")
    assert found, heading
    lines = rest.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("|"))
    assert not any(line.startswith("#") for line in lines[:start]), heading
    rows = takewhile(lambda line: line.startswith("|"), lines[start:])
    columns, _, *cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [dict(zip(columns, row, strict=True)) for row in cells]


def laid_out(form: str) -> list[tuple[int, int]]:
    """Offset and size of everything in the format of a `struct`."""
    found, offset = [], 0
    for count, code in re.findall(r"(\d*)([a-zA-Z])", form):
        whole = code in "sx"
        size = struct.calcsize(f"<{count}{code}" if whole else f"<{code}")
        for _ in range(1 if whole else int(count or 1)):
            found.append((offset, size))
            offset += size
    return found


def told(document: str, heading: str) -> list[tuple[int, int]]:
    """Offset and size of the rows whose size is a number."""
    rows = table(document, heading)
    return [(int(row["offset"]), int(row["size"])) for row in rows if row["size"].isdecimal()]
