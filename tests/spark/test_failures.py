"""What the client says becomes a failure of its own where a program must tell it apart."""

import pytest

from shardlog.client.failures import NumberTaken
from shardlog_spark.failures import OtherRows, translated


def test_S04_rows_that_are_others_than_before_are_told_so():
    told = "not appended to 'orders': number 3 of session 7"
    with pytest.raises(OtherRows, match=told), translated():
        raise NumberTaken("orders", 7, 3, 120)
