"""B14: a stream that Spark gave up on while it was planned begins again, and no other."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from shardlog_spark.restarting import run_stream


class Query:
    """What Spark's `DataStreamWriter` gives, which ends as it is told to."""

    def __init__(self, ends: list[str | None]) -> None:
        self.ends = ends
        self.starts = 0

    def start(self) -> Query:
        self.starts += 1
        return self

    def awaitTermination(self) -> None:
        reason = self.ends.pop(0)
        if reason is not None:
            raise StreamingQueryException(reason)


LATE = "org.apache.spark.SparkException: Python worker failed to connect back."


@pytest.mark.parametrize(
    ("ends", "starts", "told"),
    [
        ([None], 1, None),
        ([LATE, LATE, None], 3, None),
        ([LATE, "DataLost: gone", None], 2, "DataLost"),
        ([LATE] * 4, 3, "connect back"),
    ],
)
def test_B14_when_it_is_started_again(ends: list[str | None], starts: int, told: str | None):
    query: Any = Query(ends)
    if told is None:
        assert run_stream(query, 3) is query
    else:
        with pytest.raises(StreamingQueryException, match=told):
            run_stream(query, 3)
    assert query.starts == starts
