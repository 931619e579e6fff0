"""A power cut at every operation of short lives: what was promised is there, and no more is wrong.

M2, M3, M6, M7, M9, N1, N6 and N9 meet here: `Driver.restart` finds one state of those that the
replica went through, not older than the last token reported, with every entry whole or absent.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from shardlog.protocol.effects import Format
from shardlog.protocol.entry import Kind
from shardlog.sim.faulty_files import Crashed, Keep
from storage.driver import Driver, from_snapshot
from storage.scripts import LIVES, Life
from storage.states import chain, superblock, write

SEEDS = 3


def keeps() -> Iterator[tuple[int, Keep]]:
    yield 0, "none"
    yield 0, "all"
    for seed in range(SEEDS):
        yield seed, "random"


def operations(life: Life, begun: Driver) -> int:
    driver = from_snapshot(begun.files.snapshot(), begun, 0)
    before = driver.files.operations
    life.run(driver)
    assert len(driver.reported) == len(life.groups)
    return driver.files.operations - before


@pytest.mark.parametrize("name", LIVES)
def test_M2_M6_N6_a_crash_at_every_operation(name: str) -> None:
    life = LIVES[name]
    begun = life.begin()
    tree = begun.files.snapshot()
    for cut in range(operations(life, begun) + 1):
        for seed, keep in keeps():
            driver = from_snapshot(tree, begun, seed)
            driver.files.crash_after(cut)
            with suppress(Crashed):
                life.run(driver)
            driver.crash(keep)
            goes_on(driver)


def goes_on(driver: Driver) -> None:
    """Opening it again changes nothing (M7); what is written now survives the next crash."""
    before = driver.recovered
    driver.files.crash("none")
    assert driver.open() == before
    state = driver.state
    if before is None:
        driver.do(Format(superblock()))
    elif not state.headers or state.headers[-1].kind is not Kind.UNKNOWN:
        parent = state.headers[-1].checksum if state.headers else state.boundary
        more = chain(4, state.end, parent, epoch=5)
        driver.do(write(more[:3], driver.commit))
        driver.submit(write(more[3:]))
        driver.step()
    driver.crash("random")
