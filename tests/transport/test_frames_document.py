"""docs/frames.md against the code."""

import pytest

from shardlog.transport.frames import (
    FIXED,
    FLAGS,
    GREETING_BYTES_MAX,
    HEAD,
    OPEN_ENDED,
    FrameType,
)
from shardlog.transport.handshake import MAGIC, NAME_BYTES_MAX, Reason
from shardlog.transport.refusal_codes import CODES, Packed, unpack_refusal
from transport.documents import DOCS, laid_out, table, told
from transport.values import REFUSALS

DOCUMENT = (DOCS / "frames.md").read_text()


def test_head():
    assert told(DOCUMENT, "A frame") == laid_out(HEAD.format)


def test_types():
    rows = {row["name"]: row for row in table(DOCUMENT, "Types")}
    assert {name: int(row["type"]) for name, row in rows.items()} == {
        each.name: each.value for each in FrameType
    }
    for kind in FrameType:
        row = rows[kind.name]
        assert int(row["flags"].partition(" ")[0].rstrip(":") or 0) == FLAGS.get(kind, 0), kind
        assert (row["payload"] != "fixed") == (kind in OPEN_ENDED), kind


@pytest.mark.parametrize("kind", [each for each in FrameType if FIXED[each].size])
def test_fixed_parts(kind):
    assert told(DOCUMENT, kind.name) == laid_out(FIXED[kind].format)


def test_reasons():
    rows = table(DOCUMENT, "Reasons of GOODBYE")
    assert {row["name"]: int(row["value"]) for row in rows} == {
        each.name: each.value for each in Reason
    }


def test_every_refusal_has_a_code():
    assert {kind for kind, _ in CODES.values()} == set(REFUSALS)


def test_refusals():
    rows = table(DOCUMENT, "Refusals")
    assert {int(row["code"]): row["refusal"] for row in rows} == {
        code: kind.__name__ for code, (kind, _) in CODES.items()
    }
    for row in rows:
        parts = (row["a"], row["b"], row["c"], row["text"])
        a, b, c = [number if part else 0 for number, part in enumerate(parts[:3], 1)]
        packed = Packed(int(row["code"]), a, b, c, "some" if row["text"] else "")
        refusal = unpack_refusal(packed)
        for part, value in zip(parts, (a, b, c, "some"), strict=True):
            if hasattr(refusal, part):
                assert getattr(refusal, part) == value, (row["refusal"], part)


def test_bounds():
    assert f"more than {GREETING_BYTES_MAX} bytes" in DOCUMENT
    assert f"at most {NAME_BYTES_MAX} bytes" in DOCUMENT
    assert f"`{MAGIC.decode()}`" in DOCUMENT
