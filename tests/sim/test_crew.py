"""Work spread over processes ends, whatever the one who asks is doing."""

import os
import subprocess
import sys
import threading
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import psutil
import pytest

from shardlog.sim.crew import spread


def doubled(number: int) -> int:
    return 2 * number


def dead(number: int) -> int:
    os._exit(number)


def locked(_: int) -> bool:
    return THREADS_LOCK.acquire(timeout=10)


THREADS_LOCK = threading.Lock()

ASKER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_crew import busy
from shardlog.sim.crew import spread
list(spread(busy, [sys.argv[1]] * 2, 2))
"""


def busy(directory: str) -> None:
    (Path(directory) / str(os.getpid())).touch()
    threading.Event().wait()


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


def test_workers_end_with_whoever_asked(tmp_path: Path):
    program = [sys.executable, "-c", ASKER, str(tmp_path)]
    with subprocess.Popen(program) as asker:
        workers: list[psutil.Process] = []
        while len(workers) < 2:
            assert asker.poll() is None
            workers = [psutil.Process(int(each.name)) for each in tmp_path.iterdir()]
        asker.kill()
    assert psutil.wait_procs(workers, timeout=60)[1] == []


def test_locks_of_threads_are_not_taken_along():
    """A forked copy of this process would have the lock held, and nobody to release it."""
    with THREADS_LOCK:
        assert all(spread(locked, [1, 2], 2))
