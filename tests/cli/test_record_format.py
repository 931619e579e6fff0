"""How records are shown, whatever is in them."""

from __future__ import annotations

import json

import pytest
from click import ClickException
from hypothesis import example, given
from hypothesis import strategies as st

from shardlog.cli.failures import ClusterUnavailable
from shardlog.cli.record_format import FORMATS, renderer
from shardlog.client import Record

COMMANDS = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b2J\u202e\x7f\r\U000e0001"


def record(value: bytes, timestamp_ms: int = 0) -> Record:
    return Record(7, None, value, timestamp_ms, ((COMMANDS, value),))


@given(st.binary() | st.text().map(str.encode))
@example(COMMANDS.encode())
@example(b"\x9b2J")
def test_S23_nothing_that_a_terminal_obeys_is_shown(value: bytes):
    for output in FORMATS:
        shown = renderer(output, False, 200, terminal=True)([record(value)]).decode()
        assert all(each.isprintable() or each in "\n\t" for each in shown), output
    line = renderer("json", False, None)([record(value)])
    (header,) = json.loads(line)["headers"]
    assert header["name"] == COMMANDS
    text = value.decode(errors="replace")
    assert json.loads(line).get("value", text) == text


@given(st.binary())
def test_S23_what_is_no_terminal_gets_the_bytes(value: bytes):
    assert renderer("raw", False, None)([record(value)]) == value + b"\n"
    assert renderer("raw", True, None)([record(value)]) == value + b"\0"


def test_S23_what_a_server_says_is_escaped(capsys: pytest.CaptureFixture[str]):
    failure: ClickException = ClusterUnavailable(f"the node says: {COMMANDS}")
    failure.show()
    told = capsys.readouterr().err
    assert told.startswith("shardlog: the node says: \\x1b]52;c;")
    assert told[:-1].isprintable()


@pytest.mark.parametrize("timestamp_ms", [1 << 62, -(1 << 62), (1 << 63) - 1, 253_402_300_800_000])
def test_S24_a_time_that_is_no_date_is_shown_as_it_is(timestamp_ms: int):
    row = renderer("table", False, None)([record(b"value", timestamp_ms)]).decode()
    assert f"{timestamp_ms} ms" in row
    assert row.endswith("value\n")
