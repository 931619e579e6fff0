"""How records are shown: their bytes alone, as JSON, or as a table; and how JSON becomes a record.

JSON is one object on a line for each record.  A value that is no UTF-8 stands under `value_base64`
in place of `value`, keys and headers alike, so that every record survives `shardlog read -o json`
into `shardlog append --json`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from shardlog.cli.escaping import escaped, json_escaped

if TYPE_CHECKING:
    from shardlog.client import Record

Json = Any
FORMATS = ("raw", "json", "table")
KNOWN = {"offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers"}
OFFSET_WIDTH, TIME_WIDTH, KEY_WIDTH = 10, 23, 12

Render = Callable[[Iterable["Record"]], bytes]


class Input(NamedTuple):
    """A record as it is given to be appended."""

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None


class NoRecord(ValueError):  # noqa: N818 - named after what it is
    """JSON that says nothing that could be appended."""


def renderer(output: str, null: bool, width: int | None, terminal: bool = False) -> Render:
    """`width`: table rows are cut there, None: nowhere.  A `terminal` gets no raw bytes."""
    if output == "json":
        return lambda records: "".join(f"{_json_line(each)}\n" for each in records).encode()
    if output == "table":
        return lambda records: "".join(f"{_row(each, width)}\n" for each in records).encode()
    end = b"\0" if null else b"\n"
    if terminal:
        return lambda records: b"".join([_line(each.value) + end for each in records])
    return lambda records: b"".join([part for each in records for part in (each.value, end)])


# --- JSON ----------------------------------------------------------------------------------------


def _json_line(record: Record) -> str:
    found: dict[str, Json] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    if record.key is not None:
        _put(found, "key", record.key)
    _put(found, "value", record.value)
    if record.headers:
        found["headers"] = [_header(name, value) for name, value in record.headers]
    return json_escaped(json.dumps(found, ensure_ascii=False))


def _header(name: str, value: bytes) -> Json:
    found: dict[str, Json] = {"name": name}
    _put(found, "value", value)
    return found


def _put(found: dict[str, Json], name: str, value: bytes) -> None:
    try:
        found[name] = value.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = b64encode(value).decode()


def from_json(line: bytes) -> Input:
    """The offset is not looked at: the record gets another one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as failure:
        raise NoRecord(f"no JSON: {failure}") from failure
    if not isinstance(found, dict):
        raise NoRecord("no JSON object")
    unknown = found.keys() - KNOWN
    if unknown:
        raise NoRecord(f"{min(unknown)!r:.80} is no field of a record")
    value = _taken(found, "value")
    if value is None:
        raise NoRecord("there is no value")
    time_ms = found.get("timestamp_ms")
    if time_ms is not None and (type(time_ms) is not int or not 0 <= time_ms < 1 << 63):
        raise NoRecord("timestamp_ms is no whole number of milliseconds")
    return Input(value, _taken(found, "key"), _headers(found.get("headers", [])), time_ms)


def _headers(found: Json) -> tuple[tuple[str, bytes], ...]:
    if not isinstance(found, list):
        raise NoRecord("headers are no list")
    headers = []
    for each in found:
        name = each.get("name") if isinstance(each, dict) else None
        value = _taken(each, "value") if isinstance(each, dict) else None
        if not isinstance(name, str) or value is None:
            raise NoRecord("a header has a name and a value")
        headers.append((name, value))
    return tuple(headers)


def _taken(found: Json, name: str) -> bytes | None:
    text, base64 = found.get(name), found.get(f"{name}_base64")
    if text is not None and base64 is not None:
        raise NoRecord(f"{name} and {name}_base64 exclude each other")
    if not isinstance(text, str | None) or not isinstance(base64, str | None):
        raise NoRecord(f"{name} is no text")
    try:
        if base64 is not None:
            return b64decode(base64, validate=True)
        return None if text is None else text.encode()
    except (NotBase64, ValueError) as failure:
        raise NoRecord(f"{name}: {failure}") from failure


# --- table ---------------------------------------------------------------------------------------


def table_heading() -> str:
    return f"{'OFFSET':>{OFFSET_WIDTH}}   {'TIME':{TIME_WIDTH}}   {'KEY':{KEY_WIDTH}}   VALUE"


def time_text(timestamp_ms: int) -> str:
    """UTC, to the millisecond; or the number, if it is no date."""
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03}"


def _row(record: Record, width: int | None) -> str:
    shown = time_text(record.timestamp_ms)
    key = "-" if record.key is None else printable(record.key)
    row = f"{record.offset:>{OFFSET_WIDTH}}   {shown}   {key:{KEY_WIDTH}}   "
    row += printable(record.value if width is None else record.value[:width])
    return row if width is None or len(row) <= width else f"{row[: width - 1]}…"


def printable(value: bytes) -> str:
    """Text as it is, and what a terminal could take for a command escaped."""
    return escaped(value.decode(errors="backslashreplace"))


def _line(value: bytes) -> bytes:
    """As `printable`, with its lines and tabs, for a terminal."""
    return escaped(value.decode(errors="backslashreplace"), "\n\t").encode()
