"""A profile as one HTML file, which needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from shardlog_spark.charts import Band, Mark, bands, bars, columns
from shardlog_spark.profile_facts import Bucket, Profile, key_text
from shardlog_spark.profile_text import duration_text, rows, time_text

_DAY_MS = 86_400_000

STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --faint: #667084; --line: #dfe3ea;
  --paper: #ffffff; --card: #f7f8fa; --mark: #2f6fde; --other: #7aa5ee; --on: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --faint: #98a3b5; --line: #333c4a;
  --paper: #12171f; --card: #1a212c; --mark: #5b93f5; --other: #35599a; --on: #0d1117; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 2rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: .95rem; margin: 0 0 .6rem; } p { color: var(--faint); margin: 0 0 1rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
  gap: 1rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem;
  min-width: 0; }
.wide { grid-column: 1 / -1; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-weight: 500; color: var(--faint); white-space: nowrap; }
td.number, th.number { text-align: right; }
tr:last-child > * { border-bottom: 0; } .scroll { overflow-x: auto; }
svg { display: block; width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; }
.mark { fill: var(--mark); } .other { fill: var(--other); } .grid { stroke: var(--line); }
.axis { fill: var(--faint); } .label { fill: var(--ink); }
.on { fill: var(--on); font-weight: 600; }
"""


def page(profiles: Sequence[Profile]) -> str:
    names = ", ".join(each.shard for each in profiles) or "nothing"
    body = "".join(_section(each) for each in profiles) or "<p>There are no records.</p>"
    return document(f"Profile of {names}", body)


def document(title: str, body: str) -> str:
    """A page that needs nothing else, in its light or its dark look."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>"
        "<p>Times are UTC. Point at a mark to see its numbers.</p>"
        f"{body}</body></html>\n"
    )


def _section(profile: Profile) -> str:
    facts = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows(profile)
    )
    cards = [
        card("In numbers", f'<table class="facts">{facts}</table>', wide=True),
        card(f"Records appended in {_width(profile.width_ms)}", _over_time(profile, "records")),
        card(f"Bytes appended in {_width(profile.width_ms)}", _over_time(profile, "bytes")),
        card("Size of values, bytes, from", _sizes(profile)),
        card("Most frequent keys, records", _keys(profile)),
        card(f"Longest time to append, after a record's own, s, in {_width(profile.width_ms)}",
              _late(profile)),
        card("Epochs: each has one leader", _epochs(profile), wide=True),
    ]  # fmt: skip
    return f"<h2>{escape(profile.shard)}</h2><div class=cards>{''.join(cards)}</div>"


def card(title: str, content: str, *, wide: bool = False) -> str:
    kind = "card wide" if wide else "card"
    return f'<section class="{kind}"><h3>{escape(title)}</h3>{content}</section>'


def _over_time(profile: Profile, what: str) -> str:
    def mark(bucket: Bucket) -> Mark:
        value = bucket.records if what == "records" else bucket.bytes
        return Mark(_clock(profile, bucket.at_ms), value,
                    f"{time_text(bucket.at_ms)}: {value:,} {what}")  # fmt: skip

    return columns(f"{what} over time", [mark(each) for each in profile.even])


def _late(profile: Profile) -> str:
    marks = [
        Mark(_clock(profile, each.at_ms), max(0, each.late_ms) / 1000,
             f"{time_text(each.at_ms)}: up to {duration_text(each.late_ms)}")
        for each in profile.even
    ]  # fmt: skip
    return columns("how long after their own time records were appended", marks)


def _sizes(profile: Profile) -> str:
    marks = [
        Mark(each.label, each.records, f"from {each.label} bytes: {each.records:,} records")
        for each in profile.classes
    ]
    return columns("sizes of values", marks)


def _keys(profile: Profile) -> str:
    if not profile.top:
        return "<p>No record has a key.</p>"
    marks = [
        Mark(key_text(each.key), each.records,
             f"{key_text(each.key)}: {each.records:,} records, {each.bytes:,} bytes, "
             f"{100 * each.records / profile.records:.1f} % of all")
        for each in profile.top
    ]  # fmt: skip
    return bars("records of the most frequent keys", marks)


def _epochs(profile: Profile) -> str:
    found = [
        Band(str(each.epoch), each.first_ms, each.last_ms,
             f"epoch {each.epoch}: {each.records:,} records from offset {each.first:,}")
        for each in profile.epochs
        if each.first_ms is not None and each.last_ms is not None
    ]  # fmt: skip
    picture = bands("epochs in time", found,
                    (time_text(profile.first_ms), time_text(profile.last_ms)))  # fmt: skip
    lines = "".join(
        f'<tr><td>{each.epoch}</td><td class="number">{each.first:,}</td>'
        f'<td class="number">{each.records:,}</td><td>{_time(each.first_ms)}</td>'
        f"<td>{_time(each.last_ms)}</td>"
        f'<td class="number">{"" if pause is None else duration_text(pause)}</td></tr>'
        for each, pause in zip(profile.epochs, _pauses(profile), strict=True)
    )
    return (
        f'{picture}<div class="scroll"><table><tr><th>epoch</th><th class="number">first offset'
        '</th><th class="number">records</th><th>first batch</th><th>last batch</th>'
        f'<th class="number">nothing appended before</th></tr>{lines}</table></div>'
    )


def _pauses(profile: Profile) -> list[int | None]:
    """How long nothing was appended before each epoch with records but the first of them."""
    found: list[int | None] = []
    last_ms: int | None = None
    for each in profile.epochs:
        known = each.first_ms is not None and last_ms is not None
        found.append(max(0, (each.first_ms or 0) - (last_ms or 0)) if known else None)
        last_ms = last_ms if each.last_ms is None else each.last_ms
    return found


def _time(ms: int | None) -> str:
    return "" if ms is None else time_text(ms)


def _clock(profile: Profile, ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    if profile.last_ms - profile.first_ms > 2 * _DAY_MS:
        return f"{at:%b %d}"
    if profile.width_ms >= 60_000:
        return f"{at:%H:%M}"
    if profile.width_ms >= 1000:
        return f"{at:%H:%M:%S}"
    return f"{at:%M:%S}.{ms % 1000:03d}"


def _width(ms: int) -> str:
    for unit, size in (("d", _DAY_MS), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:g} {unit}"
    return f"{ms} ms"
