"""docs/batch-format.md against the code."""

import re

import pytest

from shardlog.transport import batch
from shardlog.transport.batch import HEAD, HEADER_HEAD, PREFIX, Batch, BatchBuilder
from shardlog.transport.compression import Compression
from transport.documents import DOCS, laid_out, table, told

DOCUMENT = (DOCS / "batch-format.md").read_text()


@pytest.mark.parametrize(
    ("heading", "form"),
    [("The prefix", PREFIX), ("The content", HEAD), ("One header", HEADER_HEAD)],
)
def test_fixed_parts(heading, form):
    assert told(DOCUMENT, heading) == laid_out(form.format)


def test_compressions():
    rows = table(DOCUMENT, "Compression")
    assert {row["name"]: int(row["value"]) for row in rows} == {
        each.name: each.value for each in Compression
    }


def test_flags():
    rows = table(DOCUMENT, "Flags")
    named = {name: value for name, value in vars(batch).items() if name.startswith("HAS_")}
    assert {row["name"]: int(row["value"]) for row in rows} == named


def read_by_document(content: bytes) -> dict[str, bytes]:
    """The columns, found by nothing but the table."""
    count, flags, _ = HEAD.unpack_from(content)
    found: dict[str, bytes] = {}
    at = HEAD.size
    for row in table(DOCUMENT, "Columns"):
        if row["flag"] and not flags & getattr(batch, row["flag"]):
            continue
        last_of = re.fullmatch(r"the last of (\w+)", row["size"])
        if last_of:
            size = int.from_bytes(found[last_of[1]][-4:], "little")
        else:
            formula = row["size"].replace("\N{MULTIPLICATION SIGN}", "*").replace("/", "//")
            size = eval(formula, {"count": count})
        found[row["column"]] = content[at : at + size]
        at += size + -size % 8
    assert at == len(content)
    return found


def test_columns():
    builder = BatchBuilder()
    builder.append(b"one", b"k", 1000)
    builder.append(b"three", None, 1005, [("name", b"value")])
    found = read_by_document(builder.body()[PREFIX.size :])
    assert list(found) == [row["column"] for row in table(DOCUMENT, "Columns")]
    read = Batch(builder.body())
    assert read.keys is not None
    assert read.key_validity is not None
    assert read.deltas is not None
    views = {
        "keys": read.keys.data,
        "key_ends": read.keys.offsets,
        "key_validity": read.key_validity,
        "values": read.values.data,
        "value_ends": read.values.offsets,
        "deltas": read.deltas,
    }
    assert {name: bytes(view) for name, view in views.items()} == {
        name: found[name] for name in views
    }
    assert found["headers"].endswith(b"namevalue")


def test_plain_columns():
    builder = BatchBuilder()
    builder.extend([b"a", b"b"])
    assert list(read_by_document(builder.body()[PREFIX.size :])) == ["value_ends", "values"]


def test_example():
    builder = BatchBuilder()
    builder.append(b"one", b"k")
    builder.append(b"three")
    shown = DOCUMENT.partition("## Example")[2].split("```")[1]
    lines = [re.match(r"((?:[0-9a-f]{2} )+) ", line) for line in shown.strip().splitlines()]
    assert bytes.fromhex("".join(line[1] for line in lines if line)) == builder.body()
