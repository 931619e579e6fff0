"""Every option that makes no sense is one line that names it."""

import re
from pathlib import Path

import pytest

from shardlog_spark.failures import BadOption
from shardlog_spark.options import COLUMNS, EARLIEST, KNOWN, LATEST, place, read_options

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
    ],
)
def test_what_makes_no_sense(changed: dict[str, str], told: str):
    with pytest.raises(BadOption, match=told):
        read_options({**LIVE, **changed})


def test_every_option_is_described():
    document = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    document = document.partition("## Options")[2].partition("\n## ")[0]
    described = {name.lower() for name in re.findall(r"^\| `([\w.]+)` \|", document, re.MULTILINE)}
    assert described == KNOWN - {"path"}
