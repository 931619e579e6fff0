"""What was acknowledged, and whether it is in the log: each record once, in order, unchanged.

Records are numbered as they are sent, and the number stands in the value.  The ledger keeps, for
each number, the checksum of its value and, once it is acknowledged, the offset it was given: twelve
bytes for a record, in two arrays.  It makes the checksums itself, so that nothing that happens to
a record behind the producer's call can go unnoticed.

The check is told of everything that is read back.  A batch that is exactly what comes next is
compared in one go; any other is looked at record by record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from shardlog.client import Range

NUMBER_DIGITS = 12
UNACKNOWLEDGED = (1 << 64) - 1
SHOWN_MAX = 5

assert array("I").itemsize == 4, "checksums are kept with array('I')"


class Ledger:
    """Filled by whoever appends."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self._sums = array("I")
        self._offsets = array("Q")

    @property
    def sent(self) -> int:
        return len(self._sums)

    def send(self, values: Sequence[bytes]) -> int:
        """Take note of the next records; the number of the first of them."""
        first = self.sent
        self._sums.extend(map(crc32c, values))
        self._offsets.extend([UNACKNOWLEDGED] * len(values))
        return first

    def acknowledge(self, first: int, ranges: Iterable[Range]) -> int:
        """The records from number `first` on got these offsets; how many they are."""
        number = first
        for each in ranges:
            found = array("Q", range(each.base, each.end))
            self._offsets[number : number + each.count] = found
            number += each.count
        self.acknowledged += number - first
        return number - first

    def offset(self, number: int) -> int | None:
        """None if it has not been acknowledged."""
        offset = self._offsets[number]
        return None if offset == UNACKNOWLEDGED else offset

    def matches(self, number: int, base: int, values: Sequence[bytes]) -> bool:
        """Whether the records from this number on have these offsets and values."""
        end = number + len(values)
        return self._offsets[number:end] == array(
            "Q", range(base, base + len(values))
        ) and self._sums[number:end] == array("I", map(crc32c, values))

    def is_value(self, number: int, value: bytes) -> bool:
        return number < self.sent and self._sums[number] == crc32c(value)


def value_of(number: int, filler: bytes) -> bytes:
    return b"%0*d%b" % (NUMBER_DIGITS, number, filler)


def number_of(value: bytes) -> int | None:
    digits = value[:NUMBER_DIGITS]
    return int(digits) if len(digits) == NUMBER_DIGITS and digits.isdigit() else None


@dataclass(frozen=True, slots=True)
class Findings:
    """Numbers of records, and offsets of what is no record that was sent."""

    acknowledged: int
    found: int
    missing: tuple[int, ...]
    doubled: tuple[int, ...]
    moved: tuple[int, ...]
    foreign: tuple[int, ...]

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.doubled or self.moved or self.foreign)

    def complaints(self) -> list[str]:
        """A line for each kind of trouble."""
        kinds = (
            ("acknowledged and lost", self.missing),
            ("in the log more than once", self.doubled),
            ("out of order, or not where it was acknowledged", self.moved),
            ("in the log, but never sent so (offsets)", self.foreign),
        )
        return [f"{len(each):,} {what}: {_listed(each)}" for what, each in kinds if each]


def _listed(numbers: tuple[int, ...]) -> str:
    """`3, 7 to 9, …`: numbers that follow each other are one."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    shown = [f"{first}" if first == last else f"{first} to {last}" for first, last in runs]
    return ", ".join([*shown[:SHOWN_MAX], *["…"] * (len(shown) > SHOWN_MAX)])


class Check:
    """Told of what is read back, in the order in which it is read."""

    def __init__(self, ledger: Ledger) -> None:
        self.found = 0
        self._ledger = ledger
        self._next = 0
        self._times_seen = bytearray(ledger.sent)
        self._moved: set[int] = set()
        self._foreign: list[int] = []
        self._last_offset = -1

    def take(self, base: int, values: Sequence[bytes]) -> None:
        """Records with the offsets from `base` on."""
        number, count = self._next, len(values)
        self.found += count
        if (
            base > self._last_offset
            and self._times_seen[number : number + count] == bytes(count)
            and self._ledger.matches(number, base, values)
        ):
            self._times_seen[number : number + count] = b"\1" * count
            self._next += count
            self._last_offset = base + count - 1
        else:
            for offset, value in enumerate(values, base):
                self._take_one(offset, value)

    def _take_one(self, offset: int, value: bytes) -> None:
        number = number_of(value)
        if number is None or not self._ledger.is_value(number, value):
            self._foreign.append(offset)
            return
        expected = self._ledger.offset(number)
        seen = self._times_seen[number]
        self._times_seen[number] = min(seen + 1, 255)
        out_of_order = number < self._next or offset <= self._last_offset
        if not seen and (out_of_order or expected not in (None, offset)):
            self._moved.add(number)
        self._next = max(self._next, number + 1)
        self._last_offset = max(self._last_offset, offset)

    def findings(self) -> Findings:
        """When everything has been read."""
        seen, ledger = self._times_seen, self._ledger
        absent = (number for number in range(ledger.sent) if not seen[number])
        return Findings(
            acknowledged=ledger.acknowledged,
            found=self.found,
            missing=tuple(each for each in absent if ledger.offset(each) is not None),
            doubled=tuple(number for number in range(ledger.sent) if seen[number] > 1),
            moved=tuple(sorted(self._moved)),
            foreign=tuple(self._foreign),
        )
