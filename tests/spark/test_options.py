"""Every option that makes no sense is one line that names it."""

import re
from pathlib import Path

import pytest

from shardlog.snapshots.arrow_columns import COLUMNS
from shardlog_spark.failures import BadOption
from shardlog_spark.options import EARLIEST, KNOWN, LATEST, place, read_options

LIVE = {"shardlog.bootstrap.servers": "127.0.0.1:7400", "subscribe": "orders"}


def test_defaults():
    found = read_options(LIVE)
    assert found.url == "shardlog://127.0.0.1:7400"
    assert found.columns == COLUMNS
    assert found.fail_on_data_loss
    assert found.starting is None


def test_offsets():
    found = read_options({**LIVE, "subscribe": "a, b", "startingOffsets": '{"a": 5, "b": -2}'})
    assert place(found.starting, "a", LATEST) == 5
    assert place(found.starting, "b", LATEST) == EARLIEST
    assert place(found.ending, "b", LATEST) == LATEST


def test_times_and_headers():
    found = read_options({**LIVE, "startingTimestamp": "5", "includeHeaders": "false"})
    assert found.times("orders") == (5, None)
    assert found.columns == tuple(each for each in COLUMNS if each != "headers")
    found = read_options({**LIVE, "endingOffsetsByTimestamp": '{"orders": 7}'})
    assert found.times("orders") == (None, 7)


def test_a_pattern():
    live = {name: it for name, it in LIVE.items() if name != "subscribe"}
    found = read_options({**live, "subscribePattern": "orders-[0-9]+"})
    assert found.matching(["orders-1", "orders-x", "my-orders-2", "orders-33"]) == (
        "orders-1",
        "orders-33",
    )


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"subscribe": ""}, "'subscribe' must name"),
        ({"subscribe": "a,a"}, "names a shard twice"),
        ({"path": "file:///x"}, "either load"),
        ({"nonsense": "1"}, "'nonsense' is not known"),
        ({"startingOffsets": "later"}, "earliest, latest or"),
        ({"startingOffsets": '{"orders": -3}'}, "earliest, latest or"),
        ({"startingOffsets": '{"orders": true}'}, "earliest, latest or"),
        ({"startingOffsets": "{}"}, "says nothing of the shard 'orders'"),
        ({"endingOffsets": '{"orders": 1, "x": 2}'}, "names 'x'"),
        ({"startingTimestamp": "yesterday"}, "a number from 0 on"),
        ({"maxOffsetsPerTrigger": "0"}, "a number from 1 on"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"columns": "value,colour"}, "some of key, value"),
        ({"snapshot": "x"}, "'snapshot' is for one shard"),
        ({"subscribePattern": "o.*"}, "'subscribe' and 'subscribePattern' exclude"),
        ({"subscribe": "", "subscribePattern": "("}, "'subscribePattern' is '\\('"),
        ({"endingTimestamp": "-1"}, "'endingTimestamp' is '-1'"),
        ({"startingOffsetsByTimestamp": '{"x": 5}'}, "says nothing of the shard 'orders'"),
        ({"endingOffsetsByTimestamp": "5"}, "MILLISECONDS"),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestamp": '{"orders": 5}'},
            "exclude each other",
        ),
        ({"includeHeaders": "true", "columns": "value"}, "exclude each other"),
    ],
)
def test_what_makes_no_sense(changed: dict[str, str], told: str):
    with pytest.raises(BadOption, match=told):
        read_options({**LIVE, **changed})


def test_every_option_is_described():
    document = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    document = document.partition("## Options")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in document.splitlines() if line.startswith("| `")]
    described = {name.lower() for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert described == KNOWN - {"path"}
