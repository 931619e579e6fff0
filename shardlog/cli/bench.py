"""`shardlog bench`: how fast a cluster appends and reads, as its users would see it.

Without a shard to use there is one for as long as the measurement takes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from shardlog.cli.append import COMPRESSIONS
from shardlog.cli.client import client_options, failures_as_exit_codes
from shardlog.cli.cluster import Cluster, Json, complete_shard
from shardlog.cli.failures import BadUsage
from shardlog.cli.output import is_for_programs, output_option, print_table, print_value
from shardlog.cli.waiting import wait_until

if TYPE_CHECKING:
    from shardlog.cli.bench_load import Load, Meter
    from shardlog.client import Client

    Work = Callable[[Client, str, Load, Meter], Coroutine[Any, Any, None]]

F = TypeVar("F", bound=Callable[..., Any])

SECONDS_DEFAULT = 10.0
READ_RECORDS_DEFAULT = 500_000
LATENCY_RECORDS_DEFAULT = 1000
SHARD_TIMEOUT_S = 60.0
COLUMNS = "records> seconds> records/s> MB/s> p50_ms> p99_ms> max_ms>"
WIDE_COLUMNS = "shard records> bytes> seconds> records/s> MB/s> calls> p50_ms> p90_ms> p99_ms> p99.9_ms> max_ms>"  # noqa: E501 - one line of columns

records_option = click.option(
    "--records", type=click.IntRange(min=1), metavar="N", help="Not more than so many."
)
seconds_option = click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Not longer."
)
record_bytes_option = click.option(
    "--record-bytes", type=click.IntRange(1, 1 << 20), default=128, show_default=True, metavar="N",
    help="How long each is.",
)  # fmt: skip
producers_option = click.option(
    "--producers", type=click.IntRange(1, 128), default=1, show_default=True, metavar="N",
    help="Each with a session of its own, on one connection.",
)  # fmt: skip
shard_argument = click.argument("shard", required=False, shell_complete=complete_shard)


@click.group()
def bench() -> None:
    """Measure how fast a cluster is.

    Records are random bytes. Without SHARD a temporary one is made, and deleted afterwards.
    """


@bench.command()
@shard_argument
@records_option
@seconds_option
@record_bytes_option
@producers_option
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N",
              help="So many records a second, whether or not the earlier ones are acknowledged.  "
              "[default: as fast as they are taken]")  # fmt: skip
@click.option("--batch-bytes", type=click.IntRange(1, 4 << 20), default=256 << 10,
              show_default=True, help="How large a batch may become.")  # fmt: skip
@click.option("--linger-ms", type=click.FloatRange(min=0), default=2.0, show_default=True,
              help="How long a batch waits for more, while others are under way.")  # fmt: skip
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True,
              help="How batches are compressed.")  # fmt: skip
@output_option
@client_options
def append(
    shard: str | None,
    records: int | None,
    seconds: float | None,
    record_bytes: int,
    producers: int,
    rate: float | None,
    batch_bytes: int,
    linger_ms: float,
    compression: str,
    output: str,
    url: str,
    timeout_ms: int,
) -> None:
    """Append for 10 seconds, or as long or as many as is asked for.

    Latency is that of a call of up to 1000 records, from when it was made or due until all are
    acknowledged.
    """
    from shardlog.cli import bench_load
    from shardlog.client import Compression

    load = bench_load.Load(
        records, seconds or (None if records else SECONDS_DEFAULT), record_bytes, producers, rate,
        batch_bytes, linger_ms, Compression[compression.upper()],
    )  # fmt: skip
    with _shard(url, shard) as name:
        _measure(url, timeout_ms, name, bench_load.append, load, output)


@bench.command()
@shard_argument
@records_option
@seconds_option
@record_bytes_option
@click.option("--readers", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N",
              help="Each reads all of it.")  # fmt: skip
@output_option
@client_options
def read(
    shard: str | None,
    records: int | None,
    seconds: float | None,
    record_bytes: int,
    readers: int,
    output: str,
    url: str,
    timeout_ms: int,
) -> None:
    """Read a shard from its beginning, by whole batches.

    A temporary shard is filled first, with half a million records or as many as is asked for.
    """
    from shardlog.cli import bench_load

    load = bench_load.Load(records, seconds, record_bytes, readers)
    with _shard(url, shard) as name:
        if shard is None:
            content = bench_load.Load(records or READ_RECORDS_DEFAULT, None, record_bytes, 1)
            _run(url, timeout_ms, name, bench_load.append, content)
        _measure(url, timeout_ms, name, bench_load.read, load, output)


@bench.command()
@shard_argument
@records_option
@seconds_option
@record_bytes_option
@producers_option
@output_option
@client_options
def latency(
    shard: str | None,
    records: int | None,
    seconds: float | None,
    record_bytes: int,
    producers: int,
    output: str,
    url: str,
    timeout_ms: int,
) -> None:
    """Append 1000 records one by one, or as long or as many as is asked for."""
    from shardlog.cli import bench_load

    most = records or (None if seconds else LATENCY_RECORDS_DEFAULT)
    load = bench_load.Load(most, seconds, record_bytes, producers)
    with _shard(url, shard) as name:
        _measure(url, timeout_ms, name, bench_load.alone, load, output)


# --- the shard -----------------------------------------------------------------------------------


@contextmanager
def _shard(url: str, named: str | None) -> Iterator[str]:
    """The one that was named, or one that is gone afterwards, whatever happens."""
    if named is not None:
        yield named
        return
    if url.startswith("shardlog://"):
        raise BadUsage("SHARD must be given: only a coordinator can make a temporary one")
    cluster = Cluster(url)
    alive = sum(node["alive"] for node in cluster.get("nodes")["nodes"])
    name = f"bench-{secrets.token_hex(4)}"
    cluster.post("shards", body={"name": name, "replicas": max(1, min(3, alive))})
    try:
        wait_until(cluster, name, _is_led, SHARD_TIMEOUT_S, f"create {name}")
        yield name
    finally:
        cluster.delete("shards", name)
        wait_until(cluster, name, lambda it: it is None, SHARD_TIMEOUT_S, f"delete {name}")


def _is_led(found: Json) -> bool:
    return found is not None and found["status"] == "STEADY" and found["leader"] is not None


# --- measuring -----------------------------------------------------------------------------------


def _measure(url: str, timeout_ms: int, shard: str, work: Work, load: Load, output: str) -> None:
    meter = _run(url, timeout_ms, shard, work, load)
    _print({"shard": shard, **meter.figures()}, output)


def _run(url: str, timeout_ms: int, shard: str, work: Work, load: Load) -> Meter:
    from shardlog.cli.bench_load import Meter, run
    from shardlog.client import Client, ClientLimits

    meter = Meter()

    async def measured() -> None:
        async with Client(url, limits=ClientLimits(deadline_ms=timeout_ms)) as client:
            await work(client, shard, load, meter)

    with failures_as_exit_codes():
        run(measured())
    return meter


def _print(found: Json, output: str) -> None:
    if is_for_programs(output):
        print_value(found, output)
        return
    latency = found["latency_ms"] or {}
    cells = {
        **found,
        "records/s": round(found["records_per_s"]),
        "MB/s": f"{found['megabytes_per_s']:.1f}",
        "seconds": f"{found['seconds']:.1f}",
        **{f"{name}_ms": f"{ms:.2f}" for name, ms in latency.items()},
    }
    columns = WIDE_COLUMNS if output == "wide" else COLUMNS
    print_table(columns, [[cells.get(name.rstrip(">")) for name in columns.split()]])
