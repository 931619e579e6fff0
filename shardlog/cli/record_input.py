"""Records out of a stream of bytes: one on a line, one before each NUL, or JSON.

What is read goes on in blocks, so that a file of any size takes little memory; a record that is
longer than any may be is noticed before it has been read to its end.  Whatever is wrong with a
record, those before it are handed out first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

from shardlog.cli.client import BadInput
from shardlog.cli.record_format import Input, NoRecord, from_json

BLOCK_BYTES = 256 << 10


class Source:
    """`position` counts the bytes read so far."""

    def __init__(self, file: IO[bytes], name: str, end: bytes, record_bytes_max: int) -> None:
        self.position = 0
        self._file = file
        self._name = name
        self._end = end
        self._record_bytes_max = record_bytes_max
        self._taken = 0

    def values(self) -> Iterator[list[bytes]]:
        """Never an empty list; the last record needs no end."""
        rest = b""
        while data := self._some():
            self.position += len(data)
            *whole, rest = (rest + data).split(self._end)
            yield from self._sound(whole, rest)
        if rest:
            yield [rest]

    def inputs(self) -> Iterator[list[Input]]:
        """As JSON; blank lines say nothing."""
        taken = 0
        for lines in self.values():
            found = []
            for number, line in enumerate(lines, taken + 1):
                if line.strip():
                    try:
                        found.append(from_json(line))
                    except NoRecord as failure:
                        yield found
                        raise BadInput(f"{self._name}, line {number}: {failure}") from failure
            taken += len(lines)
            yield found

    def _some(self) -> bytes:
        """What is there, without waiting for more: a person may be typing."""
        try:
            read: Callable[[int], bytes] = getattr(self._file, "read1", self._file.read)
            return read(BLOCK_BYTES)
        except OSError as failure:
            why = failure.strerror or str(failure)
            raise BadInput(f"{self._name} cannot be read: {why}") from failure

    def _sound(self, whole: list[bytes], rest: bytes) -> Iterator[list[bytes]]:
        for index, each in enumerate((*whole, rest)):
            if len(each) > self._record_bytes_max:
                if index:
                    yield whole[:index]
                number = self._taken + index + 1
                raise BadInput(
                    f"{self._name}, record {number}: more than {self._record_bytes_max:,} bytes"
                )
        self._taken += len(whole)
        if whole:
            yield whole
