"""What a profile says of a shard, as plain facts: text and page are made of them."""

from __future__ import annotations

from dataclasses import dataclass

BUCKETS_MAX = 60
_SECOND_MS = 1000
_WIDTHS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, _SECOND_MS, 2 * _SECOND_MS, 5 * _SECOND_MS, 10 * _SECOND_MS,
    30 * _SECOND_MS, 60 * _SECOND_MS, 300 * _SECOND_MS, 900 * _SECOND_MS, 3600 * _SECOND_MS,
    6 * 3600 * _SECOND_MS, 86_400 * _SECOND_MS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeyCount:
    key: bytes
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was appended from `at_ms` on, for as long as a profile's buckets are.

    `late_ms` is the longest time that a record of it was appended after its own.
    """

    at_ms: int
    records: int
    bytes: int
    late_ms: int = 0


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one leader appended; times are those of its first and last batch.

    One that appended no records has no times, and a snapshot still tells where it began.
    """

    epoch: int
    first: int
    records: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Values of `[2 ** (power - 1), 2 ** power)` bytes; power 0 are empty ones."""

    power: int
    records: int

    @property
    def label(self) -> str:
        return "0" if self.power == 0 else f"{_short(1 << self.power - 1)}"


@dataclass(frozen=True, slots=True)
class Profile:
    """Of one shard, with at least one record.

    `sizes` and `late_ms` are the values that 50, 90, 99 and 100 % are not above, `per_key` the
    records of a key that 50 and 99 % are not above.  `late_ms` is how long after its own time a
    record was appended.
    """

    shard: str
    records: int
    bytes: int
    first: int
    end: int
    first_ms: int
    last_ms: int
    keyless: int
    keys: int
    per_key: tuple[int, ...]
    sizes: tuple[int, ...]
    late_ms: tuple[int, ...]
    width_ms: int
    top: tuple[KeyCount, ...]
    buckets: tuple[Bucket, ...]
    epochs: tuple[Epoch, ...]
    classes: tuple[SizeClass, ...]

    @property
    def seconds(self) -> float:
        return max(1, self.last_ms - self.first_ms) / 1000

    @property
    def without_records(self) -> int:
        """Offsets that elections and sessions took, or that were given up."""
        return self.end - self.first - self.records

    @property
    def even(self) -> tuple[Bucket, ...]:
        """Buckets without a gap, as far as there are not too many."""
        known = {each.at_ms: each for each in self.buckets}
        start, stop = self.buckets[0].at_ms, self.buckets[-1].at_ms
        if (stop - start) // self.width_ms > 4 * BUCKETS_MAX:
            return self.buckets
        return tuple(
            known.get(at, Bucket(at, 0, 0)) for at in range(start, stop + 1, self.width_ms)
        )


def nice_width_ms(span_ms: int) -> int:
    """A round length, so that there are not many buckets."""
    for width in _WIDTHS_MS:
        if span_ms / width <= BUCKETS_MAX:
            return width
    return -(-span_ms // BUCKETS_MAX // _WIDTHS_MS[-1]) * _WIDTHS_MS[-1]


def _short(count: int) -> str:
    for unit, size in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if count >= size:
            return f"{count // size} {unit}"
    return str(count)


def key_text(key: bytes) -> str:
    """A key as people read it."""
    try:
        found = key.decode()
    except UnicodeDecodeError:
        return f"0x{key[:16].hex()}"
    if not found:
        return "(empty)"
    return "".join(each if each.isprintable() else "·" for each in found[:40])
