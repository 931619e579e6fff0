"""The guard: what it counts is the code's, and what it forbids is a loss."""

from __future__ import annotations

from bench.guard import Instructions, compared, losses

BASELINE = {"append": 1000.0, "read": 500.0}


def work(times: int) -> int:
    total = 0
    for number in range(times):
        total += number
    return total


def counted(times: int) -> int:
    counter = Instructions()
    counter.install()
    try:
        counter.begin()
        work(times)
        return counter.end()
    finally:
        counter.remove()


def test_the_same_work_has_the_same_count():
    assert counted(100) == counted(100)


def test_more_work_has_more():
    once, twice = counted(1000), counted(2000)
    assert 1.9 < twice / once < 2.1


def test_nothing_is_counted_outside():
    counter = Instructions()
    counter.install()
    try:
        work(100)
        assert counter.count == 0
    finally:
        counter.remove()


def test_a_loss_beyond_what_is_allowed():
    assert losses({"append": 1150, "read": 500}, BASELINE) == {}
    assert losses({"append": 1160, "read": 400}, BASELINE).keys() == {"append"}
    assert losses({"new": 10}, BASELINE) == {}


def test_each_figure_is_told_beside_its_baseline():
    lines = compared({"append": 1100, "new": 10}, BASELINE)
    assert lines[0].endswith("append  (+10.0% of the baseline)")
    assert lines[1].endswith("10 instructions  new")
