"""Quantities as people write them."""

import pytest

from shardlog.process.quantities import BadQuantity, bytes_of, duration_ms, duration_text


@pytest.mark.parametrize(
    ("text", "found"),
    [("168h", 604_800_000), ("90m", 5_400_000), ("1h30m", 5_400_000), ("1s", 1000), ("0h", 0)],
)
def test_durations(text: str, found: int) -> None:
    assert duration_ms(text) == found
    assert duration_ms(duration_text(found)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [("1048576", 1 << 20), ("1MiB", 1 << 20), ("10 GiB", 10 << 30), ("5kB", 5000), ("0", 0)],
)
def test_bytes(text: str, found: int) -> None:
    assert bytes_of(text) == found


@pytest.mark.parametrize("text", ["", "5", "5d", "1.5h", "30m1h", "-1h", " 1h"])
def test_no_durations(text: str) -> None:
    with pytest.raises(BadQuantity):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "GiB", "1.5G", "-5", "5PiB", "5 Gi B"])
def test_no_bytes(text: str) -> None:
    with pytest.raises(BadQuantity):
        bytes_of(text)
