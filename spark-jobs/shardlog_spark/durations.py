"""Durations as people write them, understood before Spark is asked: it takes some for nothing."""

from __future__ import annotations

import re

from shardlog_spark.failures import BadOption

_UNITS_MS = {
    "ms": 1, "millisecond": 1, "s": 1000, "second": 1000, "m": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_PART = re.compile(r"\s*(\d{1,12})\s*([a-z]+)")


def duration_ms(name: str, given: str, *, least: int = 0) -> int:
    """Of option `name`: `30 minutes`, `1 hour 30 minutes`, `90s`."""
    at, found = 0, 0
    while matched := _PART.match(given.lower(), at):
        unit = matched[2] if matched[2] in _UNITS_MS else matched[2].removesuffix("s")
        if unit not in _UNITS_MS:
            break
        found += int(matched[1]) * _UNITS_MS[unit]
        at = matched.end()
    if not at or given[at:].strip() or found < least:
        raise BadOption(f"{name} is {given!r}: a duration, as '30 minutes', '90s' or '1 day'")
    return found


def for_spark(ms: int) -> str:
    return f"{ms} milliseconds"
