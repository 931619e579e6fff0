"""Batches: what is put in comes out, and nothing else is taken for a batch."""

import hashlib
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.transport import compression
from shardlog.transport.batch import (
    HEAD,
    PREFIX,
    RECORDS_MAX,
    Batch,
    BatchBuilder,
    Record,
    flaw_of,
)
from shardlog.transport.compression import Compression, CompressionMissing
from shardlog.transport.failures import MalformedBatch
from transport.values import TEXT

HEADERS = st.lists(st.tuples(TEXT, st.binary(max_size=9)), max_size=3).map(tuple)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    count = draw(st.integers(1, 20))
    keys = st.none() | st.binary(max_size=9) if draw(st.booleans()) else st.none()
    headers = HEADERS if draw(st.booleans()) else st.just(())
    times: st.SearchStrategy[int | None] = st.none()
    if draw(st.booleans()):
        earliest = draw(st.integers(-(1 << 40), 1 << 60))
        times = st.integers(earliest, earliest + draw(st.sampled_from([0, (1 << 32) - 1])))
    return [
        Record(draw(keys), draw(st.binary(max_size=30)), draw(times), draw(headers))
        for _ in range(count)
    ]


def built(given_records: list[Record], how: Compression = Compression.NONE) -> bytes:
    builder = BatchBuilder()
    for each in given_records:
        builder.append(each.value, each.key, each.timestamp_ms, each.headers)
    assert len(builder) == len(given_records)
    return builder.body(how)


@given(records(), st.sampled_from(Compression))
def test_records_come_back(given_records, how):
    batch = Batch(built(given_records, how), len(given_records))
    assert list(batch) == given_records
    assert [batch.record(index) for index in range(len(batch))] == given_records
    assert all(type(each) is Record for each in batch)
    assert batch.values.all() == [each.value for each in given_records]
    assert len(batch) == len(given_records)


@given(st.lists(st.binary(max_size=9), min_size=1), st.booleans())
def test_extend_is_append(values, keyed):
    one, other = BatchBuilder(), BatchBuilder()
    for builder in (one, other):
        if keyed:
            builder.append(b"v", b"k", headers=[("a", b"b")])
    for value in values:
        one.append(value)
    other.extend(values)
    assert one.body() == other.body()
    assert one.bytes_gathered == other.bytes_gathered


@pytest.mark.parametrize("how", [Compression.ZSTD, Compression.LZ4])
def test_compression_makes_it_shorter(how):
    builder = BatchBuilder()
    builder.extend([b"the same again"] * 1000)
    body = builder.body(how)
    assert body[0] == how
    assert len(body) < len(builder.body()) / 4
    assert Batch(body).values.all() == [b"the same again"] * 1000


def test_what_compression_does_not_make_shorter_is_plain():
    builder = BatchBuilder()
    builder.append(hashlib.shake_128(b"noise").digest(1000))
    assert builder.body(Compression.ZSTD)[0] == Compression.NONE


@pytest.mark.parametrize("how", [Compression.ZSTD, Compression.LZ4])
def test_compression_that_is_not_installed(how, monkeypatch):
    builder = BatchBuilder()
    builder.extend([b"the same again"] * 1000)
    body = builder.body(how)
    for name in ("zstandard", "lz4", "lz4.block"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CompressionMissing, match=r"pip install 'shardlog\[compression\]'"):
        Batch(body)
    with pytest.raises(CompressionMissing):
        builder.body(how)


# --- what is no batch ----------------------------------------------------------------------------


def read(body: bytes) -> None:
    """Everything that a reader can do with it."""
    try:
        batch = Batch(body, plain_bytes_max=1 << 20)
        list(batch)
        batch.values.all()
    except MalformedBatch:
        return


@given(records(), st.sampled_from(Compression), st.binary(max_size=5))
def test_S13_the_first_bytes_of_a_batch_show_no_flaw(given_records, how, before):
    body = before + built(given_records, how)
    assert flaw_of(body, len(given_records), len(before)) is None
    for other in (0, len(given_records) + 1, RECORDS_MAX + 1, (1 << 32) - 1):
        assert how is not Compression.NONE or flaw_of(body, other, len(before)) is not None
    assert flaw_of(body, RECORDS_MAX + 1, len(before)) is not None


@given(records(), st.data())
def test_S13_what_can_be_read_shows_no_flaw(given_records, data):
    body = bytearray(built(given_records))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        Batch(bytes(body), len(given_records))
    except MalformedBatch:
        return
    assert flaw_of(bytes(body), len(given_records)) is None


@pytest.mark.parametrize("how", [Compression.ZSTD, Compression.LZ4])
def test_S20_so_many_records_are_refused_before_anything_is_decompressed(how: Compression):
    count = RECORDS_MAX + 1
    content = HEAD.pack(count, 0, 0) + bytes(4 * (count + 1))
    body = PREFIX.pack(how, 1, 0, len(content)) + b"nothing that could be decompressed"
    with pytest.raises(MalformedBatch, match="more than 1048576"):
        Batch(body, count)
    packed = PREFIX.pack(how, 1, 0, len(content)) + compression.compress(how, content)
    with pytest.raises(MalformedBatch, match="more than 1048576"):
        Batch(packed)


def test_S20_as_many_records_as_a_batch_may_have():
    content = HEAD.pack(RECORDS_MAX, 0, 0) + bytes(4 * (RECORDS_MAX + 2))
    body = PREFIX.pack(1, 1, 0, len(content)) + compression.compress(Compression.ZSTD, content)
    assert flaw_of(body, RECORDS_MAX) is None
    batch = Batch(body, RECORDS_MAX)
    assert batch.count == RECORDS_MAX
    assert next(iter(batch)).value == b""
    falling = bytearray(content)
    falling[HEAD.size + 4] = 1
    with pytest.raises(MalformedBatch, match="never fall"):
        Batch(PREFIX.pack(0, 1, 0, len(falling)) + bytes(falling))


@given(st.binary(max_size=200))
def test_random_bytes(data):
    read(data)


@given(st.binary(max_size=200), st.sampled_from([0, 1, 2]), st.integers(0, 100))
def test_random_content(content, how, plain_bytes):
    read(PREFIX.pack(how, 1, 0, plain_bytes if how else len(content)) + content)


@given(st.binary(max_size=200), st.integers(1, 5), st.integers(0, 31))
def test_random_columns(columns, count, flags):
    content = HEAD.pack(count, flags, 0) + columns
    read(PREFIX.pack(0, 1, 0, len(content)) + content)


@given(records(), st.sampled_from(Compression), st.data())
def test_mutated_batches(given_records, how, data):
    body = bytearray(built(given_records, how))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(body))


@given(records(), st.sampled_from(Compression), st.data())
def test_truncated_batches(given_records, how, data):
    body = built(given_records, how)
    with pytest.raises(MalformedBatch):
        Batch(body[: data.draw(st.integers(0, len(body) - 1))])


def test_another_count_than_the_entry_says():
    with pytest.raises(MalformedBatch, match="1 records where 2 are due"):
        Batch(built([Record(None, b"a", None, ())]), 2)


def test_no_records():
    with pytest.raises(ValueError, match="at least one"):
        BatchBuilder().body()
    content = HEAD.pack(0, 0, 0) + bytes(8)
    with pytest.raises(MalformedBatch):
        Batch(PREFIX.pack(0, 1, 0, len(content)) + content)


def test_ends_never_fall():
    content = HEAD.pack(2, 0, 0) + struct.pack("<4I", 0, 5, 3, 0) + bytes(8)
    with pytest.raises(MalformedBatch, match="never fall"):
        Batch(PREFIX.pack(0, 1, 0, len(content)) + content)


def test_a_huge_count_costs_nothing():
    for count, why in (((1 << 32) - 1, "more than 1048576"), (1 << 20, "1048576 records in 80")):
        content = HEAD.pack(count, 0, 0) + bytes(64)
        with pytest.raises(MalformedBatch, match=why):
            Batch(PREFIX.pack(0, 1, 0, len(content)) + content)


def test_a_huge_promise_costs_nothing():
    for how in (0, 1, 2):
        with pytest.raises(MalformedBatch, match="more than"):
            Batch(PREFIX.pack(how, 1, 0, (1 << 32) - 1) + b"abc")


def test_a_frame_that_promises_more_than_the_batch():
    bomb = compression.compress(Compression.ZSTD, bytes(10 << 20))
    with pytest.raises(MalformedBatch, match="another length"):
        Batch(PREFIX.pack(1, 1, 0, 1000) + bomb)
    packed = compression.compress(Compression.LZ4, bytes(10 << 20))
    with pytest.raises(MalformedBatch, match="LZ4"):
        Batch(PREFIX.pack(2, 1, 0, 1000) + packed)


# --- what a producer may not do ------------------------------------------------------------------


def test_timestamps_for_all_or_none():
    builder = BatchBuilder()
    builder.append(b"a", timestamp_ms=1)
    with pytest.raises(ValueError, match="all records or for none"):
        builder.append(b"b")
    with pytest.raises(ValueError, match="all records or for none"):
        builder.extend([b"b"])
    plain = BatchBuilder()
    plain.append(b"a")
    with pytest.raises(ValueError, match="all records or for none"):
        plain.append(b"b", timestamp_ms=1)


def test_timestamps_too_far_apart():
    builder = BatchBuilder()
    builder.append(b"a", timestamp_ms=0)
    builder.append(b"b", timestamp_ms=1 << 32)
    with pytest.raises(ValueError, match="apart"):
        builder.body()


def test_columns_are_views():
    body = built([Record(b"k", b"v", None, ())])
    batch = Batch(body)
    assert batch.values.data.obj is body
    assert batch.keys is not None
    assert batch.keys.offsets.obj is body
