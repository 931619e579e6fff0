"""What an export tells about its runs, and the examples that run it, without Spark."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from shardlog_spark import export_job
from shardlog_spark.export_book import Book, Run
from shardlog_spark.export_page import page, text
from shardlog_spark.failures import BadOption

EXAMPLES = Path(__file__).parents[2] / "spark-jobs" / "schedules"
RUNS = [
    Run(1, 0, {"a": 0}, {"a": {"offset": 10}}, {"a": 8}, {"a": 1}, {"a": 0}),
    Run(2, 3_600_000, {"a": 10}, {"a": {"offset": 2010}}, {"a": 2000}, {"a": 0}, {"a": 7}),
]


def test_a_summary_in_lines():
    assert text("/lake", RUNS).splitlines() == [
        "/lake: 2,008 rows of 2 runs, 1 rejects, 7 late",
        f"  {'a':24} [10, 2,010): 2,000 rows, 0 rejects, 7 late",
    ]
    assert text("/lake", []) == "/lake: nothing to export"


def test_a_page_with_plots():
    made = page("/lake/<x>", RUNS)
    assert made.count("<svg") == 4
    assert "run 2, 1970-01-01 01:00:00.000: 60" in made  # minutes since the one before
    assert "&lt;x&gt;" in made
    assert "<x>" not in made


def test_where_staged_files_belong():
    named = Book._named
    assert named(3, "table=records/day=x/shard=a/p.parquet") == (
        "day=x/shard=a/run-00000003-p.parquet"
    )
    assert named(3, "table=rejects/day=x/shard=a/p.parquet") == (
        "_rejects/day=x/shard=a/run-00000003-p.parquet"
    )


def test_the_examples_give_options_that_there_are():
    dag = (EXAMPLES / "airflow_export.py").read_text()
    compile(dag, "airflow_export.py", "exec")
    line = dag.split("bash_command=")[1].split("),")[0]
    words = shlex.split(" ".join(each.strip().strip('"') for each in line.splitlines()).strip("( "))
    argo = yaml.safe_load((EXAMPLES / "argo_export.yaml").read_text())
    (template,) = argo["spec"]["workflowSpec"]["templates"]
    for given in (words[3:], template["container"]["args"]):
        found = export_job.parser().parse_args(given)
        assert (found.shard, found.compact) == ("orders", 24)


@pytest.mark.parametrize("option", [("--compact", "1"), ("--late", "soon")])
def test_options_that_make_no_sense(option: tuple[str, str]):
    line = ["--snapshots", "file:///x", "--shard", "a", "--out", "y", *option]
    with pytest.raises(BadOption, match=option[0]):
        export_job.check(export_job.parser().parse_args(line))
