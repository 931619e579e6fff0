"""More is asked for at once by who is answered in full, and quickly."""

import pytest

from shardlog.client.limits import ClientLimits
from shardlog.client.portion import Portion

LIMITS = ClientLimits(attempt_ms=1000, read_bytes=4_000, long_read_bytes=12_000)


@pytest.mark.parametrize(
    ("took_ms", "size", "bytes_"),
    [
        (1, 4_000, 12_000),
        (99, 2_000, 12_000),
        (100, 4_000, 4_000),
        (1, 1_999, 4_000),
        (1, 0, 4_000),
    ],
)
def test_by_how_the_last_one_was_answered(took_ms: float, size: int, bytes_: int):
    portion = Portion(LIMITS)
    assert portion.bytes == 4_000
    portion.answered(took_ms, size)
    assert portion.bytes == bytes_


def test_one_slow_answer_and_it_is_less_again():
    portion = Portion(LIMITS)
    portion.answered(1, 12_000)
    portion.answered(500, 12_000)
    assert portion.bytes == 4_000
