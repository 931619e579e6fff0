"""Work spread over processes, whoever asks.

Whoever asks may have threads: a test run that has spoken gRPC, or a notebook.  A fork copies their
locks and not the threads that would release them, so a forked worker may wait for ever.  Workers
are therefore forked from a server that is started afresh and never has threads, or started afresh
themselves where there is no such server.  A worker that dies, killed for its memory perhaps, ends
the work with an error; `multiprocessing.Pool` would wait for its result for ever.  And workers end
with whoever asked, however that one ended.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

METHODS = ("forkserver", "spawn")
AHEAD = 2
"""Items handed out for each worker: one at work and one waiting."""


def spread(
    work: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Generator[Result, None, None]:
    """What `work` makes of each item, as they come; items not begun are dropped with the iterator.

    `jobs` 0: as many as there are cores; 1: in this process."""
    if jobs == 1:
        yield from map(work, items)
        return
    workers = jobs or multiprocessing.cpu_count()
    remaining = iter(items)
    context = multiprocessing.get_context(_method())
    pool = ProcessPoolExecutor(workers, context, _end_with_asker)
    try:
        running = {pool.submit(work, item) for item in islice(remaining, AHEAD * workers)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {pool.submit(work, item) for item in islice(remaining, len(done))}
            yield from map(Future.result, done)
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_asker() -> None:
    asker = multiprocessing.parent_process()
    assert asker is not None

    def watch() -> None:
        asker.join()
        signal.raise_signal(signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _method() -> str:
    offered = multiprocessing.get_all_start_methods()
    return next(method for method in METHODS if method in offered)
