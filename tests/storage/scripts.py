"""Short lives of a replica, for the tests that interrupt them everywhere.

Each has a beginning, which is not interrupted, and a course, in which rounds overlap as they do in
a process: the next effects are submitted while the last round's slots are still to be written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardlog.protocol.effects import (
    Barrier,
    Disk,
    Erase,
    Format,
    ResetLog,
    RewriteEntry,
    Sync,
    TrimLog,
    TruncateLog,
    WriteSuperblock,
)
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry
from shardlog.protocol.history import Span
from storage.driver import Driver, begun
from storage.states import after, chain, superblock, write

ENTRIES = chain(24, records=(1, 3, 2))
"""Eight fill a segment."""
MORE = after(ENTRIES, 12)


def base_of(number: int) -> int:
    return ENTRIES[number].header.base


def end_of(number: int) -> int:
    return ENTRIES[number].header.end


def parted(number: int, count: int) -> list[Entry]:
    """Entries of epoch 2 in the place of `ENTRIES[number]` and what follows."""
    return after(ENTRIES[:number], count, epoch=2)


def epoch_1(commit: int = 0, **changes: object) -> WriteSuperblock:
    return WriteSuperblock(superblock(1, history=(Span(1, 0),), commit=commit, **changes))


def fenced(epoch: int, commit: int = 0) -> WriteSuperblock:
    return WriteSuperblock(superblock(epoch, history=(Span(1, 0),), commit=commit))


def epoch_2(number: int, commit: int = 0, **changes: object) -> WriteSuperblock:
    """Epoch 2 begins in the place of `ENTRIES[number]`."""
    return epoch_2_from(base_of(number), commit, **changes)


def epoch_2_from(offset: int, commit: int = 0, **changes: object) -> WriteSuperblock:
    history = (Span(1, 0), Span(2, offset))
    return WriteSuperblock(superblock(2, history=history, commit=commit, **changes))


def trim_before(number: int) -> TrimLog:
    return TrimLog(base_of(number), ENTRIES[number].header.parent)


def many_spans(count: int) -> WriteSuperblock:
    history = tuple(Span(1 + number, number) for number in range(count))
    return WriteSuperblock(superblock(count, history=history))


# --- beginnings --------------------------------------------------------------------------------


def twelve() -> Driver:
    """Over two segments; six are committed."""
    driver = begun(ENTRIES[:8])
    driver.do(write(ENTRIES[8:12], end_of(5)))
    return driver


def twenty() -> Driver:
    """Over three segments; nine are committed."""
    driver = begun(ENTRIES[:10], 0)
    driver.do(write(ENTRIES[10:20], end_of(8)))
    return driver


def damaged(driver: Driver, *numbers: int) -> Driver:
    """These entries are lost, with their slots."""
    driver.rot_both(*(base_of(number) for number in numbers))
    driver.damaged_restart()
    return driver


def unreadable_middle() -> Driver:
    driver = begun(ENTRIES[:7], 0)
    driver.do(write(ENTRIES[7:12], end_of(1)))
    return damaged(driver, 3, 4, 5)


def unreadable_tail() -> Driver:
    """The last three entries are lost: nobody knows how many there were."""
    return damaged(begun(ENTRIES[:6], 0), 3, 4, 5)


def unreadable_segment_end() -> Driver:
    """The end of one segment and the beginning of the next."""
    return damaged(twelve(), 6, 7, 8, 9)


def unreadable_tail_below_the_commit() -> Driver:
    """Lost from below the commit offset on: where the tail begins nobody knows in the file."""
    driver = begun(ENTRIES[:6])
    driver.do(epoch_1(end_of(3)))
    return damaged(driver, 2, 3, 4, 5)


def unreadable_over_epochs() -> Driver:
    """One stretch, told in two pieces."""
    driver = begun(ENTRIES[:4])
    driver.do(epoch_2(4))
    driver.do(write([*parted(4, 3)]))
    return damaged(driver, 3, 4)


def corrupt() -> Driver:
    """Entries lost, their slots not."""
    driver = twelve()
    for number in (6, 7, 11):
        driver.rot_entry(base_of(number))
    driver.damaged_restart()
    return driver


# --- courses -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """`groups` are submitted one by one, with one round performed in between."""

    begin: Callable[[], Driver]
    groups: tuple[tuple[Disk, ...], ...]

    def run(self, driver: Driver) -> None:
        for group in self.groups:
            driver.submit(*group)
            driver.step()
        driver.settle()


def life(begin: Callable[[], Driver], *groups: tuple[Disk, ...]) -> Life:
    """With a token behind every group."""
    return Life(begin, tuple((*group, Sync(at)) for at, group in enumerate(groups, 1)))


def rewrites(first: int, end: int) -> tuple[Disk, ...]:
    return tuple(RewriteEntry(entry) for entry in ENTRIES[first:end])


LONG = after(ENTRIES[:6], 2, sizes=(1500,))
AGAIN = superblock(incarnation=8)

LIVES = {
    "format, promise, append": life(
        Driver,
        (Format(superblock()),),
        (WriteSuperblock(superblock(1)),),
        (epoch_1(),),
        (write(ENTRIES[:2]),),
    ),
    "appends roll into new segments": life(
        begun,
        (write(ENTRIES[:3]),),
        (write(ENTRIES[3:4]), write(ENTRIES[4:9], end_of(2))),
        (write(ENTRIES[9:10], end_of(3)),),
        (write(ENTRIES[10:17], end_of(8)),),
        (epoch_1(end_of(9)), write(ENTRIES[17:18], end_of(9))),
    ),
    "promises": life(
        twelve,
        (fenced(2, end_of(5)),),
        (epoch_2(12, end_of(5), led=2),),
        (fenced(3, end_of(5)), fenced(4, end_of(5))),
    ),
    "a superblock outgrows its place": life(begun, (many_spans(700),), (many_spans(701),)),
    "promises of several sectors": life(
        begun, (many_spans(90),), (many_spans(120),), (many_spans(110),)
    ),
    "checkpoint behind which the log is read": life(
        twenty,
        (epoch_1(end_of(10), sessions_at=end_of(10)),),
        (write(ENTRIES[20:21], end_of(12)),),
    ),
    "trimmed files are written again": life(
        begun,
        (write(ENTRIES[:12]),),
        (write(ENTRIES[12:14], end_of(9)), trim_before(9)),
        (write(ENTRIES[14:17], end_of(12)),),
        (write(ENTRIES[17:21], end_of(17)), trim_before(17)),
        (write(ENTRIES[21:], end_of(20)), epoch_1(end_of(20))),
        (write(MORE[:9], end_of(20)),),
        (fenced(2, end_of(20)),),
        (TruncateLog(MORE[6].header.end), Barrier()),
        (epoch_2_from(MORE[7].header.base, end_of(20)),),
        (write(after([*ENTRIES, *MORE[:7]], 3, epoch=2)),),
    ),
    "trimmed, started over, written again": life(
        begun,
        (write(ENTRIES[:12], end_of(9)), trim_before(9)),
        (ResetLog(0, GENESIS_CHECKSUM), epoch_1()),
        (write(ENTRIES[:10]),),
    ),
    "truncate in the last segment, adopt, append": life(
        twelve,
        (fenced(2, end_of(5)),),
        (TruncateLog(end_of(9)), Barrier(), epoch_2(10, end_of(5))),
        (write(parted(10, 3), end_of(5)),),
    ),
    "truncate into an earlier segment, adopt, append": life(
        twenty,
        (fenced(2, end_of(8)),),
        (TruncateLog(end_of(9)), Barrier(), epoch_2(10, end_of(8))),
        (write(parted(10, 7), end_of(9)),),
    ),
    "truncate to where a segment begins": life(
        twenty,
        (TruncateLog(end_of(15)), Barrier(), epoch_2(16, end_of(8))),
        (write(parted(16, 2), end_of(9)),),
    ),
    "truncate all": life(
        lambda: begun(ENTRIES[:12]),
        (TruncateLog(0), Barrier(), epoch_2(0)),
        (write(chain(2, epoch=2)),),
    ),
    "truncate inside an unreadable stretch": life(
        unreadable_middle,
        (TruncateLog(end_of(4)), Barrier(), epoch_2(5, end_of(1))),
        (write(parted(5, 2)),),
        rewrites(3, 5),
    ),
    "truncate inside a stretch over the end of a segment": life(
        unreadable_segment_end,
        (TruncateLog(end_of(8)), Barrier(), epoch_2(9, end_of(5))),
        (write(parted(9, 2)),),
        rewrites(6, 9),
    ),
    "truncate where an unreadable stretch meets a segment": life(
        unreadable_segment_end,
        (TruncateLog(end_of(7)), Barrier(), epoch_2(8, end_of(5))),
        (write(parted(8, 2)),),
        rewrites(6, 8),
    ),
    "truncate an unreadable tail": life(
        unreadable_tail,
        (TruncateLog(end_of(2)), Barrier(), epoch_2(3)),
        (write(parted(3, 2)),),
    ),
    "repair in place": life(corrupt, rewrites(6, 8), rewrites(11, 12), (write(ENTRIES[12:13]),)),
    "repair an unreadable stretch": life(
        unreadable_middle, rewrites(3, 6), (write(ENTRIES[12:13]),)
    ),
    "repair an unreadable stretch over the end of a segment": life(
        unreadable_segment_end, rewrites(6, 8), rewrites(8, 10)
    ),
    "repair an unreadable tail": life(
        unreadable_tail, rewrites(3, 5), (TruncateLog(end_of(4)),), (write(ENTRIES[5:6]),)
    ),
    "repair a tail before what lies in front of it": life(
        unreadable_tail_below_the_commit, rewrites(4, 6), rewrites(2, 4)
    ),
    "repair a stretch from behind": life(
        unreadable_over_epochs,
        (RewriteEntry(parted(4, 1)[0]),),
        rewrites(3, 4),
    ),
    "repair a tail that does not fit": life(
        lambda: damaged(begun(ENTRIES[:8]), 6, 7),
        (RewriteEntry(LONG[0]),),
        (RewriteEntry(LONG[1]),),
    ),
    "trim": life(
        twenty,
        (epoch_1(end_of(9)), Barrier(), TrimLog(end_of(8), ENTRIES[8].header.checksum)),
        (write(ENTRIES[20:22], end_of(9)),),
        (epoch_1(end_of(19)), TrimLog(end_of(19), ENTRIES[19].header.checksum)),
    ),
    "reset": life(
        twelve,
        (ResetLog(end_of(15), ENTRIES[15].header.checksum), Barrier(), epoch_1(end_of(15))),
        (write(ENTRIES[16:19], end_of(15)),),
    ),
    "erase and format again": life(
        twelve,
        (Erase(),),
        (Format(AGAIN),),
        (write(ENTRIES[:1]),),
    ),
}
