"""The judge itself: a history that is well, and one contradiction at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from faults.history import (
    ConfirmedRead,
    Fate,
    History,
    Sent,
    Standing,
    contradictions,
    standing_of,
    value_of,
)


def sent(producer: int, number: int, offset: int | None, fate: Fate = Fate.ACKNOWLEDGED) -> Sent:
    """Called at ten times its number, and answered five later."""
    replied_ns = 10 * number + 5 if offset is not None else None
    return Sent(producer, number, 10 * number, replied_ns, offset, fate)


def well() -> History:
    """Two producers; offset 0 is a control entry, and one record of unknown fate stands at 4."""
    log = [Standing(1, 1, 1), Standing(2, 2, 1), Standing(3, 1, 2), Standing(4, 2, 2)]
    return History(
        sent=[
            sent(1, 1, 1),
            sent(2, 1, 2),
            sent(1, 2, 3),
            sent(2, 2, None, Fate.UNKNOWN),
            sent(1, 3, None, Fate.UNKNOWN),
            sent(2, 3, None, Fate.FAILED),
        ],
        reads=[ConfirmedRead(16, 18, 0, 3, (log[0], log[1]))],
        log=log,
        tails={"a tail": list(log)},
        disks={"a disk": list(log)},
    )


def test_what_is_well_is_well():
    assert contradictions(well()) == []


def lost(history: History) -> None:
    history.log = history.log[1:]


def moved(history: History) -> None:
    history.log = [history.log[0], Standing(9, 2, 1), *history.log[2:]]


def twice(history: History) -> None:
    history.log = [*history.log, Standing(9, 1, 1)]


def unknown_twice(history: History) -> None:
    history.log = [*history.log, Standing(9, 2, 2)]


def undead(history: History) -> None:
    history.log = [*history.log, Standing(9, 2, 3)]


def sent_by_nobody(history: History) -> None:
    history.log = [*history.log, Standing(9, 7, 7)]


def swapped(history: History) -> None:
    first, third = history.sent[0], history.sent[2]
    first.offset, third.offset = third.offset, first.offset
    history.log = [Standing(1, 1, 2), history.log[1], Standing(3, 1, 1), history.log[3]]


def never_settled(history: History) -> None:
    history.sent.append(sent(1, 4, None, Fate.WAITING))


def tail_short(history: History) -> None:
    history.tails["a tail"] = history.log[:-1]


def disk_differs(history: History) -> None:
    history.disks["a disk"] = [*history.log[:-1], Standing(4, 1, 3)]


def stale_read(history: History) -> None:
    """It was called after the record at 3 was acknowledged, and does not show it."""
    history.reads[0] = replace(history.reads[0], called_ns=26, replied_ns=28)


def read_of_the_future(history: History) -> None:
    history.reads[0] = replace(history.reads[0], called_ns=1, replied_ns=2)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lost, "was acknowledged at 1 and stands at []"),
        (moved, "was acknowledged at 2 and stands at [9]"),
        (twice, "was acknowledged at 1 and stands at [1, 9]"),
        (unknown_twice, "of unknown fate, stands at [4, 9]"),
        (undead, "failed and stands at [9]"),
        (sent_by_nobody, "was sent by nobody"),
        (swapped, "not behind record 1 of producer 1"),
        (never_settled, "was never settled"),
        (tail_short, "a tail has 3 records where the log has 4"),
        (disk_differs, "a disk has Standing(offset=4, producer=1, number=3) where"),
        (stale_read, "not linearizable: the append of 2 at offset 3 was answered"),
        (read_of_the_future, "not linearizable: the read that saw"),
    ],
)
def test_what_is_not_is_told(spoil: Callable[[History], None], told: str):
    history = well()
    spoil(history)
    assert any(told in each for each in contradictions(history)), contradictions(history)


def test_values_tell_who_sent_them():
    value = value_of(7, 1 << 40, 128)
    assert len(value) == 128
    assert standing_of(3, value) == Standing(3, 7, 1 << 40)
