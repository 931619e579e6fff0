"""Tables, aims and the page that a run writes, from figures that are given."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.compare.aims import aims
from bench.compare.page import BEGIN, END, NoMarks, Run, marks, replaced, section
from bench.compare.plan import QUICK
from bench.compare.table import ROWS, Column, cell, sweep, table

OURS = Column(
    "shardlog", "Shardlog", True,
    {"saturated_128": 1_000_000.0, "lone_p50": 1.0, "offered_20000_p99": 9.0, "shards_10": 9e5,
     "offered_20000_reached": 20_000.0, "independent_bare": 30_000.0, "pause": 0.3}, {},
)  # fmt: skip
KAFKA = Column(
    "kafka", "Kafka", False,
    {"saturated_128": 250_000.0, "lone_p50": 0.5, "offered_20000_p99": 5.0, "pause": 9.0,
     "offered_20000_reached": 20_000.0}, {"cold_read": "read: no answer after 5 s"},
)  # fmt: skip
ETCD = Column(
    "etcd", "etcd", True,
    {"saturated_128": 7_000.0, "lone_p50": 2.0, "offered_20000_p99": 4_000.0,
     "offered_20000_reached": 7_100.0}, {},
)  # fmt: skip
ABSENT = Column("nats", "NATS", False, {}, {}, "needs Go to be built")
RUN = Run(
    machine="2 cores", date="2026-11-16", minutes=7, quick=True, busy_before=0.02,
    versions=dict.fromkeys(("shardlog", "kafka", "etcd", "nats"), "1"),
    settings=dict.fromkeys(("shardlog", "kafka", "etcd", "nats"), "as it is"),
    columns=(OURS, KAFKA, ETCD, ABSENT), yardstick={"saturated_128": 2_000_000.0},
    drifts={"saturated_128": 0.1}, plan=QUICK, plots=(("pause.svg", "Write pause"),),
)  # fmt: skip


def row(figure: str) -> list[str]:
    lines = table(RUN.columns, RUN.bare)
    number = next(at for at, each in enumerate(ROWS) if each.figure == figure)
    return [part.strip() for part in lines[number + 2].strip("|").split("|")]


def test_a_row_has_every_system_and_the_ratios():
    assert row("saturated_128")[2:] == [
        "2,000,000", "1,000,000", "250,000", "7,000", "-", "142.86", "4.00",
    ]  # fmt: skip


def test_less_is_better_for_a_latency():
    assert row("lone_p50")[-2:] == ["2.00", "0.50"]


def test_a_latency_at_a_rate_that_was_not_reached_is_none():
    latency = next(each for each in ROWS if each.figure == "offered_20000_p99")
    assert cell(ETCD, latency) == "7,100/s only"
    assert row("offered_20000_p99")[-2:] == ["-", "0.56"]


def test_a_sweep_names_those_that_have_figures():
    lines = sweep(RUN.columns, "shards", [("1", "saturated_128"), ("10", "shards_10")])
    assert lines[-1] == "| 10 | 900,000 | - | - |"
    assert sweep([ABSENT], "shards", [("10", "shards_10")]) == []


def test_aims_are_met_missed_or_not_measured():
    found = {each.text: each for each in aims(RUN.columns, RUN.yardstick)}
    met = {text: each.met for text, each in found.items()}
    assert met["saturated append of 128 B against Kafka without a sync"] is True
    assert met["saturated append of 128 B against Kafka with one"] is None
    assert met["saturated append of 128 B against the yardstick"] is True
    assert met["the same with bare frames"] is True
    assert met["p50 of a lone append against the best that syncs"] is True
    assert met["write pause after kill -9 against the shortest"] is True
    slow = replace(OURS, figures={**OURS.figures, "saturated_128": 300_000.0})
    missed = [each for each in aims((slow, KAFKA), RUN.yardstick) if each.met is False]
    assert [each.measured for each in missed] == [pytest.approx(1.2), pytest.approx(0.15)]


def test_the_section_tells_what_is_missing_and_why():
    text = section(RUN, 0.25)
    assert "- NATS: needs Go to be built." in text
    assert "- Kafka, cold_read: read: no answer after 5 s." in text
    assert "![Write pause](benchmarks/pause.svg)" in text
    assert "doubted" not in text


def test_a_run_on_a_busy_or_moving_machine_is_marked():
    doubtful = replace(RUN, busy_before=0.6, drifts={"saturated_128": -0.4, "lone_p50": 0.1})
    assert marks(doubtful, 0.25) == [
        "others used 60% of the machine before it began",
        "the yardstick's saturated_128 moved by -40% during the run",
    ]
    assert "are to be doubted" in section(doubtful, 0.25)


def test_only_what_stands_between_the_marks_is_replaced():
    page = f"# Benchmarks\n\n{BEGIN}\nold\n{END}\n\nmore\n"
    made = section(RUN, 0.25)
    assert replaced(page, made) == f"# Benchmarks\n\n{made}\n\nmore\n"
    assert replaced(replaced(page, made), made) == replaced(page, made)
    with pytest.raises(NoMarks):
        replaced("# Benchmarks\n", made)


def test_raw_figures_are_json():
    from dataclasses import asdict

    assert json.loads(json.dumps(asdict(RUN)))["columns"][0]["name"] == "shardlog"
