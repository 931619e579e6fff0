"""The process is killed, the machine goes on, and only later the power fails.

What the dead process had written, but not synced, can be read at the next start.  A replica that
believes it answers for it, so it must be durable by then (M2).  What a failed sync dropped can be
read just as well, and must not be believed at all.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from shardlog.protocol.effects import TruncateLog
from shardlog.sim.faulty_files import Crashed
from shardlog.storage.failures import DiskFailed
from storage.driver import Driver
from storage.scripts import ENTRIES, base_of, end_of, epoch_2, fenced, parted, twelve
from storage.states import found, write


def appends(driver: Driver) -> None:
    driver.do(write(ENTRIES[12:15], end_of(8)))
    driver.do(write(ENTRIES[15:20], end_of(12)))


def promises(driver: Driver) -> None:
    driver.do(fenced(2, end_of(5)))
    driver.do(TruncateLog(base_of(8)), epoch_2(8, end_of(5)))
    driver.do(write(parted(8, 3), end_of(5)))


@pytest.mark.parametrize("script", [appends, promises])
def test_M2_what_is_believed_after_a_kill_survives_a_power_cut(script) -> None:
    whole = twelve()
    begun = whole.files.operations
    script(whole)
    for operations in range(whole.files.operations - begun + 1):
        driver = twelve()
        driver.files.crash_after(operations)
        with suppress(Crashed):
            script(driver)
        driver.files.kill()
        believed = driver.restart()
        seen = found(driver.store, believed)
        driver.files.crash("none")
        assert found(driver.store, driver.open()) == seen, operations


def test_M2_what_a_failed_sync_dropped_is_not_believed() -> None:
    driver = twelve()
    driver.submit(write(ENTRIES[12:13]))
    round_ = driver.store.take()
    assert round_ is not None
    round_.write()
    driver.files.luck = lambda: 0.0  # type: ignore[method-assign]
    driver.files.fail_next_sync()
    with pytest.raises(DiskFailed):
        round_.sync()
    driver.files.kill()
    recovered = driver.restart()
    assert recovered is not None
    assert recovered.headers[-1] == ENTRIES[11].header
