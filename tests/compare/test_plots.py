"""Plots are drawn where there are figures, the same bytes for the same figures."""

from __future__ import annotations

from pathlib import Path

from bench.compare.plots import plots
from bench.compare.table import Column

FIGURES = {
    "saturated_128": 1e6, "shards_10": 9e5, "shards_100": 7e5, "shards_100_resident": 90.0,
    "size_16": 20.0, "size_1048576": 300.0, "size_16_cpu": 1.0, "pause": 0.3,
    "cpu_saturated": 2.0, "offered_2000_p99": 3.0, "offered_20000_p99": 7.0,
    "offered_20000_reached": 20_000.0,
}  # fmt: skip


def test_plots_of_what_there_is(tmp_path: Path):
    column = Column("shardlog", "Shardlog", True, FIGURES, {})
    drawn = plots([column], tmp_path / "one")
    assert [name for name, _ in drawn] == [
        "latency.svg", "pause.svg", "cost.svg", "shards.svg", "sizes.svg",
    ]  # fmt: skip
    plots([column], tmp_path / "two")
    for name, _ in drawn:
        first = (tmp_path / "one" / name).read_text()
        assert first == (tmp_path / "two" / name).read_text()
        assert first.startswith("<?xml")
    assert "slope -0.08" in (tmp_path / "one" / "shards.svg").read_text()


def test_no_figures_no_plots(tmp_path: Path):
    assert plots([Column("kafka", "Kafka", False, {}, {}, "no Java")], tmp_path) == []
