"""Messages within messages are counted as the parser would make them."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from shardlog.transport.failures import MalformedMessage
from shardlog.transport.generated import log_pb2
from shardlog.transport.message_parts import require_parts

RECORDS = (5, 1, 4)
"""Of an AppendRequest: the list, its records, their headers."""
MANY = 1 << 30

HEADER = st.builds(log_pb2.RecordHeader, name=st.text(max_size=3), value=st.binary(max_size=200))
RECORD = st.builds(
    log_pb2.Record,
    key=st.none() | st.binary(max_size=3),
    value=st.binary(max_size=200),
    timestamp_ms=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    headers=st.lists(HEADER, max_size=4),
)


def walked(data: bytes, parts_max: int, fields_max: int = MANY) -> None:
    require_parts(data, RECORDS, parts_max, fields_max)


def filled(records: list[log_pb2.Record]) -> bytes:
    """With a name so long that the whole is walked over, whatever the bounds."""
    request = log_pb2.AppendRequest(shard="s" * 2000, request=1 << 40)
    request.records.records.extend(records)
    data: bytes = request.SerializeToString()
    return data


@given(st.lists(RECORD, max_size=20))
def test_S09_parts_are_counted(records: list[log_pb2.Record]):
    parts = 1 + len(records) + sum(len(each.headers) for each in records)
    data = filled(records)
    walked(data, parts)
    with pytest.raises(MalformedMessage, match=f"more than {parts - 1} parts"):
        walked(data, parts - 1)


def test_S09_fields_are_counted_known_or_not():
    data = filled([log_pb2.Record(value=b"x")]) + b"\xf8\x07\x01" * 100
    walked(data, 3, 105)
    with pytest.raises(MalformedMessage, match="too many fields"):
        walked(data, 3, 104)


@given(st.binary(max_size=60))
def test_S09_what_is_no_message_is_told_or_left_to_the_parser(junk: bytes):
    data = filled([]) + junk
    try:
        walked(data, 10)
    except MalformedMessage:
        return
    try:
        found = log_pb2.AppendRequest.FromString(data)
    except DecodeError:
        return
    assert len(found.records.records) <= 10


def test_S09_four_million_empty_records_are_refused_before_they_are_parsed():
    count = 4_000_000
    content = b"\x0a\x00" * count
    length = len(content)
    lengths = bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14 & 127 | 128,
                     length >> 21])  # fmt: skip
    with pytest.raises(MalformedMessage, match="parts"):
        require_parts(b"\x2a" + lengths + content, RECORDS, 1 << 17, 1 << 19)
