"""The live log within Spark, which does not know asyncio: a loop that runs when it is asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from shardlog.client import Client, ClientLimits
from shardlog.client.failures import OffsetTrimmed
from shardlog.protocol.entry import Header
from shardlog_spark.failures import BadOption, CannotRead, DataLost, SparkFailure, translated
from shardlog_spark.options import (
    EARLIEST,
    LATEST,
    Options,
    TlsFiles,
    place,
    require_order,
)
from shardlog_spark.ranges import LiveRange

T = TypeVar("T")


def asked(
    options: Options,
    question: Callable[[Client], Coroutine[Any, Any, T]],
    refused: type[SparkFailure] = CannotRead,
) -> T:
    """One question, with a client of its own."""

    async def whole() -> T:
        async with client_of(options) as client:
            return await question(client)

    with translated(refused):
        return asyncio.run(whole())


def client_of(options: Options) -> Client:
    assert options.url is not None
    return Client(
        options.url,
        tls=_tls_context(options.tls),
        tls_name=options.tls.name,
        limits=ClientLimits(deadline_ms=options.timeout_ms),
    )


def _tls_context(files: TlsFiles) -> ssl.SSLContext | None:
    """Read where it is used: the files may be other ones on another machine."""
    if files.authority is None:
        return None
    named = files.authority
    try:
        tls = ssl.create_default_context(cafile=named)
        if files.certificate is not None:
            named = f"{files.certificate} with {files.key}"
            tls.load_cert_chain(files.certificate, files.key, lambda: "")
    except ssl.SSLError as failure:
        reason = failure.reason.replace("_", " ").lower() if failure.reason else "not PEM"
        raise BadOption(f"{named}: {reason}") from failure
    except OSError as failure:
        raise BadOption(f"{named}: {failure.strerror}") from failure
    return tls


async def shards_of(client: Client, options: Options) -> tuple[str, ...]:
    """What is subscribed to; with a pattern those that are there now."""
    if options.pattern is None:
        return options.shards
    found = options.matching(await client.shards())
    if not found:
        raise CannotRead(f"there is no shard whose name matches {options.pattern.pattern!r}")
    return found


async def ends(client: Client, shard: str) -> tuple[int, int]:
    """The first offset that is kept, and where the log ends by a quorum's word."""
    return await client.first(shard), await client.end(shard)


def within(options: Options, shard: str, *, starting: int = EARLIEST) -> tuple[int, int]:
    """What is to be read of a shard now; `starting` if the options do not say."""

    async def question(client: Client) -> tuple[int, int, int]:
        first, end = await ends(client, shard)
        start = place(options.starting, shard, starting)
        starting_ms, ending_ms = options.times(shard)
        if starting_ms is not None and options.starting is None:
            start = await client.locate(shard, starting_ms)
        if ending_ms is not None and options.ending is None:
            end = max(first, await client.locate(shard, ending_ms))
        return first, end, min(start, end) if options.starting is None else start

    first, end, start = asked(options, question)
    start = {EARLIEST: first, LATEST: end}.get(start, start)
    to = place(options.ending, shard, LATEST)
    to = {EARLIEST: first, LATEST: end}.get(to, to)
    has = f"{shard!r} has [{first}, {end})"
    if max(start, to) > end:
        raise CannotRead(f"offset {max(start, to)} is out of range: {has}")
    if place(options.starting, shard, EARLIEST) != EARLIEST:
        require_order(shard, start, to)
    if start < first:
        start = not_kept(options, shard, start, first)
    return start, to


def not_kept(options: Options, shard: str, start: int, first: int) -> int:
    """Where to go on if that is allowed."""
    if options.fail_on_data_loss:
        raise DataLost(
            f"offsets from {start} of {shard!r} are gone: it starts at {first}; "
            "option failOnDataLoss=false skips them"
        )
    return first


def entries(options: Options, partition: LiveRange) -> Iterator[tuple[Header, memoryview]]:
    """From a client of its own, which lives as long as somebody takes them."""
    with asyncio.Runner() as runner, translated():
        found = _entries(options, partition)
        try:
            while True:
                try:
                    taken = runner.run(_next(found))
                except StopAsyncIteration:
                    return
                yield from taken
        finally:
            runner.run(found.aclose())


async def _next(found: AsyncIterator[list[tuple[Header, memoryview]]]) -> Any:
    return await anext(found)


async def _entries(
    options: Options, partition: LiveRange
) -> AsyncGenerator[list[tuple[Header, memoryview]], None]:
    start = partition.start
    async with client_of(options) as client:
        reader = client.raw(partition.shard)
        while start < partition.end:
            try:
                async with aclosing(reader.entries(start, partition.end)) as found:
                    async for taken in found:
                        start = taken[-1].header.end
                        yield [(entry.header, entry.body) for entry in taken]
                return
            except OffsetTrimmed as trimmed:
                start = not_kept(options, partition.shard, start, trimmed.first)
