"""The Read stream: committed entries, verified, then record by record or as they are.

The next entries are asked for when the last ones have been written, and gRPC takes what is written
only while the client reads: a slow one holds up nobody, and holds one read's worth of memory.  What
comes raw from the files is believed only if it is whole and continues what came before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from functools import partial
from itertools import islice
from typing import Any

from shardlog.protocol.entry import Entry, Header, Kind
from shardlog.transport.batch import PREFIX, Batch, Record
from shardlog.transport.compression import CompressionMissing
from shardlog.transport.entries import split_entries
from shardlog.transport.failures import MalformedBatch, MalformedFrame
from shardlog.transport.generated import log_pb2
from shardlog_node.log_port import Found, LogPort, Refused
from shardlog_node.log_stream import Desk, LogLimits, Wire
from shardlog_node.log_wire import VERSION, Unfit, invalid, lost, not_read, parse_read
from shardlog_node.verifying import is_whole

Verified = list[tuple[Header, memoryview]]

RECORD_SPARE_BYTES = 16
"""For what stands around a record in an answer."""


class Mismatch(Exception):  # noqa: N818 - named after what happened
    """What was read at `offset` is damaged, or does not continue the log."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class ReadStream:
    """`run` it once.  `_next` is the first offset that has not been taken from the log."""

    def __init__(self, desk: Desk, wire: Wire, request: log_pb2.ReadRequest, port: LogPort) -> None:
        self._desk = desk
        self._wire = wire
        self._port = port
        self._request = request
        self._start = self._next = 0
        self._end: int | None = None
        self._parent: int | None = None
        self._mismatched: int | None = None

    async def run(self) -> None:
        await self._begin()
        while self._end is None or self._next < self._end:
            found = await self._port.tail(self._next, self._desk.limits.read_bytes)
            if found.count:
                await self._deliver(found)

    async def _begin(self) -> None:
        """Where it ends is asked first, so that what was acknowledged before is in it."""
        request = self._request
        if request.HasField("end_offset"):
            self._end = request.end_offset
        if not request.follow:
            confirmed = await self._port.end()
            self._end = confirmed if self._end is None else min(self._end, confirmed)
        kind = request.WhichOneof("start")
        if kind == "offset":
            self._start = request.offset
        elif kind == "timestamp_ms":
            self._start = (await self._port.locate(max(request.timestamp_ms, 0))).offset
        else:
            self._start = (await self._port.locate(0)).first
        self._next = self._start

    async def _deliver(self, found: Found) -> None:
        try:
            entries = await self._desk.work(len(found.raw), partial(self._take, found))
        except Mismatch as mismatch:
            await self._mend(mismatch)
            return
        responses = _responses(
            entries,
            log_pb2.ReadResponse(version=VERSION, commit_offset=found.commit),
            self._start,
            self._end,
            self._desk.limits,
            self._request.encoded,
        )
        sizes = [0] if self._request.encoded else [_plain_bytes(*each) for each in entries]
        size = max(len(found.raw), sum(sizes))
        async with AsyncExitStack() as stack:
            if max(sizes, default=0) > max(len(found.raw), self._desk.limits.read_bytes):
                await stack.enter_async_context(self._desk.inflating)
            while (data := await self._desk.work(size, lambda: next(responses, None))) is not None:
                await self._wire.write(data)

    def _take(self, found: Found) -> Verified:
        """Those with records, verified; a `Mismatch` moves nothing."""
        try:
            entries = split_entries(found.raw)
        except MalformedFrame as failure:
            raise Mismatch(self._next, str(failure)) from failure
        if len(entries) != found.count:
            told = f"{len(entries)} entries where {found.count} are announced"
            raise Mismatch(self._next, told)
        at, parent = self._next, self._parent
        taken: Verified = []
        for header, body in entries:
            fits = header.base <= at < header.end if parent is None else header.base == at
            if not fits or parent not in (None, header.parent):
                raise Mismatch(at, f"the entry {header.id} does not continue the log at {at}")
            if not is_whole(Entry(header, body)):
                raise Mismatch(header.base, f"the entry {header.id} is damaged")
            if header.kind is Kind.LOST:
                if at == self._next:
                    raise Unfit(lost(at, header.end))
                break
            at, parent = header.end, header.checksum
            if header.kind is Kind.DATA and (self._end is None or header.base < self._end):
                taken.append((header, body))
        self._next, self._parent = at, parent
        return taken

    async def _mend(self, mismatch: Mismatch) -> None:
        """Ask the replica to verify its copy, and to repair it: once, then the client has to."""
        if self._mismatched == mismatch.offset:
            told = f"{mismatch}: try again"
            code = log_pb2.Failure.CODE_TRY_AGAIN
            raise Unfit(log_pb2.Failure(code=code, message=told, retriable=True)) from mismatch
        self._mismatched = mismatch.offset
        await self._port.verify(mismatch.offset)


def _plain_bytes(header: Header, body: memoryview) -> int:
    """What taking it apart costs, as the body itself announces it."""
    return int(PREFIX.unpack_from(body)[3]) if len(body) >= PREFIX.size else 0


def _responses(
    entries: Verified,
    about: log_pb2.ReadResponse,
    start: int,
    end: int | None,
    limits: LogLimits,
    encoded: bool,
) -> Iterator[bytes]:
    """Made one by one, when they are asked for."""
    if encoded:
        return (_encoded(header, body, about) for header, body in entries)
    return _by_record(entries, about, start, end, limits)


def _headed(about: log_pb2.ReadResponse, header: Header, base: int) -> log_pb2.ReadResponse:
    return log_pb2.ReadResponse(
        version=about.version,
        commit_offset=about.commit_offset,
        base_offset=base,
        epoch=header.epoch,
        timestamp_ms=header.timestamp_ms,
    )


def _encoded(header: Header, body: memoryview, about: log_pb2.ReadResponse) -> bytes:
    response = _headed(about, header, header.base)
    response.batch.count = header.count
    response.batch.crc32c = header.body_checksum & 0xFFFFFFFF
    response.batch.body = bytes(body)
    data: bytes = response.SerializeToString()
    return data


def _by_record(
    entries: Verified,
    about: log_pb2.ReadResponse,
    start: int,
    end: int | None,
    limits: LogLimits,
) -> Iterator[bytes]:
    """Entries of one epoch and one time go together, up to a size."""
    response: log_pb2.ReadResponse | None = None
    size = 0
    for header, body in entries:
        if response is not None and (
            response.epoch != header.epoch or response.timestamp_ms != header.timestamp_ms
        ):
            yield response.SerializeToString()
            response = None
        for offset, record in _records(header, body, start, end, limits.plain_bytes_max):
            if response is not None and size >= limits.read_bytes:
                yield response.SerializeToString()
                response = None
            if response is None:
                response, size = _headed(about, header, offset), 0
            size += _add(response.records.records, offset, record)
    if response is not None:
        yield response.SerializeToString()


def _add(records: Any, offset: int, record: Record) -> int:
    """About how long it is there."""
    key, value, timestamp_ms, headers = record
    added = records.add(key=key, value=value, timestamp_ms=timestamp_ms, offset=offset)
    size = len(value) + len(key or b"") + RECORD_SPARE_BYTES
    for name, content in headers:
        added.headers.add(name=name, value=content)
        size += len(name) + len(content) + RECORD_SPARE_BYTES
    return size


def _records(
    header: Header, body: memoryview, start: int, end: int | None, plain_bytes_max: int
) -> Iterator[tuple[int, Record]]:
    """Those in `[start, end)`, with their offsets."""
    first = max(start - header.base, 0)
    stop = header.count if end is None else min(end - header.base, header.count)
    try:
        batch = Batch(body, header.count, plain_bytes_max)
        yield from islice(enumerate(batch, header.base), first, stop)
    except (MalformedBatch, CompressionMissing) as failure:
        told = f"the entry {header.id} cannot be taken apart: {failure}"
        raise invalid(f"{told}; read it `encoded`, or go on at {header.end}") from failure


async def read(desk: Desk, wire: Wire) -> None:
    """Serve one stream to its end; raises `Gone` or `Idle` if the other side does not go on."""
    data = await wire.read(desk.limits.first_ms)
    if data is None:
        return
    try:
        await _serve(desk, parse_read(data), wire)
    except Unfit as unfit:
        await wire.write(not_read(unfit.failure))


async def _serve(desk: Desk, request: log_pb2.ReadRequest, wire: Wire) -> None:
    with closing(LogPort(desk.plane, request.shard)) as port:
        try:
            await ReadStream(desk, wire, request, port).run()
        except Refused as refused:
            raise Unfit(desk.failure(request.shard, refused.refusal)) from refused
