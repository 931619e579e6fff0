"""A profile as a table for terminals."""

from __future__ import annotations

from datetime import UTC, datetime

from shardlog_spark.profile_facts import Profile, key_text

TOP_SHOWN = 5


def time_text(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def duration_text(ms: int) -> str:
    """In the unit that leaves the fewest digits."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(ms) >= 2 * size:
            return f"{ms / size:,.1f} {unit}"
    return f"{ms} ms"


def rows(profile: Profile) -> list[tuple[str, str]]:
    """What there is to say in numbers, each with its name."""
    p = profile
    share = 100 * p.top[0].records / p.records if p.top else 0
    return [
        ("records", f"{p.records:,}"),
        ("bytes of values", f"{p.bytes:,}"),
        ("offsets", f"[{p.first:,}, {p.end:,}), {p.without_records:,} without a record"),
        ("appended", f"{time_text(p.first_ms)} to {time_text(p.last_ms)} UTC"),
        ("rate", f"{p.records / p.seconds:,.0f} records/s, {p.bytes / p.seconds:,.0f} B/s"),
        ("value size", _shares(tuple(f"{each:,} B" for each in p.sizes))),
        ("appended after own time", _shares(tuple(map(duration_text, p.late_ms)))),
        ("keys", f"{p.keys:,}; {p.keyless:,} records without"),
        ("records of a key", f"50 % up to {p.per_key[0]:,}, 99 % up to {p.per_key[1]:,}"),
        ("most frequent key", f"{share:.1f} % of all records" if p.top else "none"),
        ("epochs", f"{len(p.epochs)}"),
    ]


def text(profile: Profile) -> str:
    lines = [profile.shard]
    lines += [f"  {name:24} {value}" for name, value in rows(profile)]
    for each in profile.top[:TOP_SHOWN]:
        lines.append(f"    {key_text(each.key):40} {each.records:>12,} {each.bytes:>14,} B")
    lines.append("  epoch      first offset        records   from, to (UTC)")
    for epoch in profile.epochs:
        times = ", ".join(time_text(ms) for ms in (epoch.first_ms, epoch.last_ms) if ms is not None)
        lines.append(
            f"  {epoch.epoch:<6} {epoch.first:>16,} {epoch.records:>14,}   {times or 'no records'}"
        )
    return "\n".join(lines)


def _shares(values: tuple[str, ...]) -> str:
    half, most, nearly, largest = values
    return f"50 % up to {half}, 90 % {most}, 99 % {nearly}, at most {largest}"
