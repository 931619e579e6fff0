"""Durations are understood before Spark starts, which takes some words for no time at all."""

import pytest

from shardlog_spark.durations import duration_ms
from shardlog_spark.failures import BadOption


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("30 minutes", 1_800_000),
        ("1 hour 30 minutes", 5_400_000),
        ("90s", 90_000),
        (" 1 Day ", 86_400_000),
        ("2 weeks", 1_209_600_000),
        ("250 ms", 250),
        ("0 seconds", 0),
    ],
)
def test_as_people_write_them(given: str, ms: int):
    assert duration_ms("--late", given) == ms


@pytest.mark.parametrize(
    "given", ["soon", "", "30", "minutes", "3 moons", "1 hour or so", "-1 day"]
)
def test_what_is_none(given: str):
    with pytest.raises(BadOption, match=r"--gap is .*: a duration"):
        duration_ms("--gap", given)


def test_a_gap_of_nothing_is_none():
    with pytest.raises(BadOption, match="--gap is '0 s'"):
        duration_ms("--gap", "0 s", least=1)
