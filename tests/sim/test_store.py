"""The metadata store: linearizable, slow, and not always heard."""

from random import Random

import pytest

from shardlog.protocol.coordination import CompareAndSwap, Loaded, Swapped
from shardlog.protocol.entry import Member
from shardlog.protocol.shard import Shard, Status
from shardlog.sim.scheduler import Scheduler
from shardlog.sim.store import LATE_US, Store

RECORD = Shard("s", Status.STEADY, 1, None, (Member("a", 1),))


def written(lost: float, late: float, times: int = 200) -> tuple[Store, list[tuple[int, object]]]:
    """The same compare-and-swap many times over, and what was answered when."""
    scheduler = Scheduler()
    store = Store(scheduler, Random(1), 1000, lost, late)
    answers: list[tuple[int, object]] = []
    for _ in range(times):
        wanted = CompareAndSwap(store.version, RECORD)
        store.compare_and_swap(wanted, lambda event: answers.append((scheduler.now_us, event)))
    scheduler.run()
    return store, answers


def test_one_of_many_writes_on_the_same_version_stands():
    store, answers = written(0.0, 0.0)
    assert (store.version, store.conflicts) == (1, 199)
    assert sum(isinstance(event, Swapped) and event.done for _, event in answers) == 1
    assert store.unanswered == store.answered_late == 0


def test_a_write_whose_answer_is_lost_stands():
    store, answers = written(1.0, 0.0)
    assert (store.version, store.record, store.unanswered) == (1, RECORD, 200)
    assert answers == []


def test_a_late_answer_tells_how_it_was():
    store, answers = written(0.0, 1.0)
    assert store.answered_late == len(answers) == 200
    assert min(time_us for time_us, _ in answers) > LATE_US[0]


@pytest.mark.parametrize("trouble", [(1.0, 0.0), (0.0, 1.0)])
def test_once_it_is_healed_every_answer_comes_soon(trouble: tuple[float, float]):
    scheduler = Scheduler()
    store = Store(scheduler, Random(1), 1000, *trouble)
    store.heal()
    answers: list[Loaded | Swapped] = []
    store.load(answers.append)
    scheduler.run()
    assert answers == [Loaded(0, None)]
    assert scheduler.now_us < 5000
