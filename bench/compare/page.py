"""The part of docs/benchmarks.md that a run writes, between two marks; the rest is left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .aims import aims, aims_table
from .arithmetic import drifted, slope
from .plan import Plan
from .table import OURS, Column, sweep, table

BEGIN = "<!-- compare: made by `make bench`, not by hand -->"
END = "<!-- compare: end -->"


class NoMarks(Exception):  # noqa: N818 - named after what is wrong
    """The page has no place for the section."""


@dataclass(frozen=True, slots=True)
class Run:
    machine: str
    date: str
    minutes: float
    quick: bool
    busy_before: float
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    columns: Sequence[Column]
    yardstick: Mapping[str, float]
    drifts: Mapping[str, float]
    plan: Plan
    plots: Sequence[tuple[str, str]]

    @property
    def bare(self) -> Column:
        return Column("limit", "yardstick", True, self.yardstick, {})


def marks(run: Run, busy_max: float) -> list[str]:
    """Why figures of this run are to be doubted; none if they are not."""
    found = []
    if run.busy_before > busy_max:
        found.append(f"others used {run.busy_before:.0%} of the machine before it began")
    if not run.drifts:
        found.append("the yardstick could not be taken again afterwards")
    for name, by in drifted(run.drifts).items():
        found.append(f"the yardstick's {name} moved by {by:+.0%} during the run")
    return found


def section(run: Run, busy_max: float) -> str:
    lines = [BEGIN, "", "## Beside other systems", ""]
    kind = "`make bench QUICK=1`" if run.quick else "`make bench`"
    lines += [f"{kind}, {run.date}, {run.minutes:.0f} minutes. {run.machine}.", ""]
    if doubts := marks(run, busy_max):
        lines += [f"**These figures are to be doubted: {'; '.join(doubts)}.**", ""]
    lines += [
        "Three replicas, servers, client and readers on the same cores and the same disk, one "
        "system after the other. *Yardstick* is `bench/limit.py` in the same run. The last two "
        "columns are ratios of Shardlog to the best of the others, of those that sync before they "
        "acknowledge and of all; above 1 Shardlog is ahead, whatever the unit.", "",
    ]  # fmt: skip
    lines += [*table(run.columns, run.bare), ""]
    lines += [*_absent(run.columns), *aims_table(aims(run.columns, run.yardstick)), ""]
    lines += [*_sweeps(run), *_how(run)]
    lines += [f"![{title}](benchmarks/{name})" for name, title in run.plots]
    return "\n".join([*lines, "", END])


def _absent(columns: Sequence[Column]) -> list[str]:
    lines = [f"- {each.title}: {each.failure}." for each in columns if each.failure]
    for each in columns:
        reasons: dict[str, list[str]] = {}
        for name, why in each.missing.items():
            reasons.setdefault(why, []).append(name)
        lines += [f"- {each.title}, {', '.join(names)}: {why}." for why, names in reasons.items()]
    return ["What is missing:", "", *lines, ""] if lines else []


def _sweeps(run: Run) -> list[str]:
    plan, columns = run.plan, run.columns
    lines: list[str] = []
    parts = [
        ("One client, records of 128 B evenly over many shards (partitions, streams), records/s:",
         "shards", [("1", "saturated_128"), *((f"{n:,}", f"shards_{n}") for n in plan.shards)], 0),
        ("Size of a record, MB/s:",
         "bytes", [(f"{n:,}", f"size_{n}") for n in plan.sizes], 1),
        ("Replicas, records/s of 128 B:",
         "replicas", [("3", "saturated_128"), *((f"{n}", f"replicas_{n}") for n in plan.replicas)],
         0),
        ("Size of the log before, records/s of 128 B:",
         "MiB", [(f"{n:,}", f"log_{n}") for n in plan.log_mib], 0),
    ]  # fmt: skip
    for title, heading, rows, decimals in parts:
        if len(rows) > 1 or heading == "bytes":
            lines += [title, "", *sweep(columns, heading, rows, decimals), ""]
            lines += _slope_line(columns, rows)
    return lines


def _slope_line(columns: Sequence[Column], rows: Sequence[tuple[str, str]]) -> list[str]:
    ours = next((each for each in columns if each.name == OURS), None)
    if ours is None:
        return []
    points = [
        (float(title.replace(",", "")), ours.figures[figure])
        for title, figure in rows
        if figure in ours.figures
    ]
    power = slope(points)
    return [] if power is None else [f"Slope of Shardlog on logarithmic axes: {power:+.2f}.", ""]


def _how(run: Run) -> list[str]:
    lines = ["How each was run:", ""]
    for each in run.columns:
        lines.append(f"- {each.title} {run.versions[each.name]}: {run.settings[each.name]}.")
    return [
        *lines, "",
        "Kafka, NATS and etcd are loaded by a Go program with franz-go, nats.go and clientv3; "
        "Shardlog by `shardlog.client` on uvloop. Nothing is compressed, values are random. "
        "Offered records are due at fixed times and their latency counts from then, whether or "
        "not earlier ones were answered; those never answered count as if answered at the end. "
        "Cold reads come after the files were taken out of the page cache. A pause is the longest "
        "time without an acknowledgement to sixteen appends in flight, each repeated until it is "
        "acknowledged.", "",
    ]  # fmt: skip


def replaced(page: str, made: str) -> str:
    """The page with this section in place of the last one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise NoMarks("docs/benchmarks.md has no marks for the section")
    return before + made + after
