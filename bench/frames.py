"""What the frame codec costs, against what cannot be avoided.

Each row is timed in one run, a turn of each variant after the other.  `encode` makes the buffers
of a frame, `decode` feeds the bytes of many frames as a socket would (in pieces of 256 KiB) and
unpacks the fixed parts; `to message` makes messages of the protocol of them, with bodies copied.
The yardstick is what any codec must do: one `struct` pack and unpack for each frame and one copy of
its bytes.  What counts is the ratio to it.  Times depend on the machine; they are the tenth
percentile of all rounds, which has waited least for a core.

    python bench/frames.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Callable
from statistics import quantiles

from shardlog.protocol.entry import Entry, Header, Kind
from shardlog.transport import frames
from shardlog.transport.batch import Batch, BatchBuilder
from shardlog.transport.entries import join_entries, split_entries
from shardlog.transport.frame_messages import to_message
from shardlog.transport.frames import FIXED, Buffer, Decoder, FrameType

PIECE = 256 << 10
YARDSTICK = struct.Struct("<IBBHQQQII")

Step = Callable[[], object]


def entry_of(body: bytes) -> Entry:
    checksum = 1 | len(body) << 32
    return Entry(Header(3, 1000, 512, Kind.DATA, 4, 5, 1_700_000_000_000, 7, checksum, 9), body)


def pieces_of(buffers: list[Buffer]) -> list[bytes]:
    data = b"".join(buffers)
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


def appends(size: int, count: int) -> dict[str, Step]:
    body = b"b" * size
    stream = pieces_of(frames.encode_append(1, 2, 3, 4, 5, body) * count)
    unpack = FIXED[FrameType.APPEND].unpack_from

    def encode() -> None:
        for _ in range(count):
            frames.encode_append(1, 2, 3, 4, 5, body)

    def decode() -> None:
        decoder = Decoder()
        for piece in stream:
            for frame in decoder.feed(piece):
                unpack(frame.payload)

    def message() -> None:
        decoder = Decoder()
        for piece in stream:
            for frame in decoder.feed(piece):
                to_message(frame)

    return {"encode": encode, "decode": decode, "to message": message} | yardstick(size, count)


def entries(size: int, each: int, count: int) -> dict[str, Step]:
    batch = [entry_of(b"b" * size)] * each
    raw = join_entries(batch)
    stream = pieces_of(frames.encode_entries(1, 2, 3, 4, each, raw) * count)
    fixed = FIXED[FrameType.ENTRIES]

    def encode() -> None:
        for _ in range(count):
            frames.encode_entries(1, 2, 3, 4, each, join_entries(batch))

    def encode_raw() -> None:
        for _ in range(count):
            frames.encode_entries(1, 2, 3, 4, each, raw)

    def decode() -> None:
        decoder = Decoder()
        for piece in stream:
            for frame in decoder.feed(piece):
                fixed.unpack_from(frame.payload)
                split_entries(frame.payload[fixed.size :])

    def message() -> None:
        decoder = Decoder()
        for piece in stream:
            for frame in decoder.feed(piece):
                to_message(frame)

    steps: dict[str, Step] = {
        "encode": encode,
        "encode raw": encode_raw,
        "decode": decode,
        "to message": message,
    }
    return steps | yardstick((size + 80) * each, count)


def batches(size: int, records: int, count: int) -> dict[str, Step]:
    values = [b"v" * size] * records
    built = BatchBuilder()
    built.extend(values)
    body = built.body()

    def build() -> None:
        for _ in range(count):
            builder = BatchBuilder()
            builder.extend(values)
            builder.body()

    def append_each() -> None:
        for _ in range(count):
            builder = BatchBuilder()
            for value in values:
                builder.append(value)
            builder.body()

    def read_columns() -> None:
        for _ in range(count):
            Batch(body)

    def read_values() -> None:
        for _ in range(count):
            Batch(body).values.all()

    def read_records() -> None:
        for _ in range(count):
            for _ in Batch(body):
                pass

    steps: dict[str, Step] = {
        "build": build,
        "append each": append_each,
        "read columns": read_columns,
        "read values": read_values,
        "read records": read_records,
    }
    return steps | yardstick(len(body), count)


def yardstick(size: int, count: int) -> dict[str, Step]:
    source, pack, unpack = bytes(size), YARDSTICK.pack, YARDSTICK.unpack

    def bare() -> None:
        for _ in range(count):
            unpack(pack(1, 2, 3, 4, 5, 6, 7, 8, 9))
            bytearray(source)

    return {"yardstick": bare}


def measured(steps: dict[str, Step], count: int, rounds: int) -> dict[str, float]:
    """Nanoseconds for each frame."""
    times: dict[str, list[int]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter_ns()
            step()
            times[name].append(time.perf_counter_ns() - start)
    return {name: quantiles(taken, n=10)[0] / count for name, taken in times.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=30)
    rounds = arguments.parse_args().rounds
    groups = {
        "APPEND, body of 136 B": (appends(136, 2000), 2000),
        "APPEND, body of 64 KiB": (appends(64 << 10, 100), 100),
        "ENTRIES, 16 of 136 B": (entries(136, 16, 200), 200),
        "ENTRIES, 1 of 64 KiB": (entries(64 << 10, 1, 100), 100),
        "batch, 512 records of 128 B": (batches(128, 512, 20), 20),
    }
    for title, (steps, count) in groups.items():
        found = measured(steps, count, rounds)
        bare = found["yardstick"]
        print(f"\n{title}")
        for name, nanoseconds in found.items():
            print(f"  {name:14} {nanoseconds:10,.0f} ns  {nanoseconds / bare:6.2f}")


if __name__ == "__main__":
    main()
