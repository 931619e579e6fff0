"""Work spread over processes ends, whatever the one who asks is doing."""

import os
import threading
from concurrent.futures.process import BrokenProcessPool

import pytest

from shardlog.sim.crew import spread


def doubled(number: int) -> int:
    return 2 * number


def dead(number: int) -> int:
    os._exit(number)


def locked(_: int) -> bool:
    return THREADS_LOCK.acquire(timeout=10)


THREADS_LOCK = threading.Lock()


@pytest.mark.parametrize("jobs", [0, 1, 2, 5])
def test_every_item_is_worked_on_once(jobs: int):
    assert sorted(spread(doubled, range(20), jobs)) == list(range(0, 40, 2))


def test_who_stops_asking_leaves_nothing_behind():
    results = spread(doubled, iter(range(10**9)), 2)
    assert next(results) % 2 == 0
    results.close()


def test_a_worker_that_dies_ends_the_work():
    with pytest.raises(BrokenProcessPool):
        list(spread(dead, [1, 2], 2))


def test_locks_of_threads_are_not_taken_along():
    """A forked copy of this process would have the lock held, and nobody to release it."""
    with THREADS_LOCK:
        assert all(spread(locked, [1, 2], 2))
