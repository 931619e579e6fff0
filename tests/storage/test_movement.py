"""The movement of control records: the seed's diagrams as tables.

A row is written as in the seed: N is SEGMENT_START, C is CHECKPOINT, F is EPOCH_END and EC is
FENCED.  The seed numbers offsets in steps of five; ours count checkpoints, so C_20, C_25, C_30 are
C1, C2, C3 here, and N_21, N_26, N_31 begin the stretches behind them: N2, N3, N4.
"""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from shardlog.protocol.failures import ImpossibleState
from shardlog.storage import movement
from shardlog.storage.layout import RecordType
from shardlog.storage.movement import FORMATTED, Record, Records, flaw

LETTERS = {
    RecordType.SEGMENT_START: "N",
    RecordType.CHECKPOINT: "C",
    RecordType.EPOCH_END: "F",
    RecordType.FENCED: "EC",
}
TYPES = {letters: kind for kind, letters in LETTERS.items()}
EPOCH = 1


def row(text: str) -> Records:
    made: list[Record] = []
    for sequence, word in enumerate(text.split()):
        found = re.fullmatch(r"([A-Z]+)(\d+)", word)
        assert found
        made.append(Record(sequence, TYPES[found[1]], int(found[2]), EPOCH, 0))
    return tuple(made)


def told(records: Records) -> str:
    return " ".join(f"{LETTERS[record.type]}{record.number}" for record in records)


Step = Callable[[Records], Records]


def checkpoint(records: Records) -> Records:
    return movement.checkpointed(records, EPOCH, 0)


def stable(number: int) -> Step:
    return lambda records: movement.cut(records, number)


def fence(epoch: int) -> Step:
    return lambda records: movement.fenced(records, epoch, 0)


def start(epoch: int) -> Step:
    return lambda records: movement.activated(records, epoch, 0)


def end(records: Records) -> Records:
    return movement.ended(records, EPOCH, 0)


def moved(before: str, *steps: tuple[Step, str]) -> None:
    records = row(before)
    for number, (step, after) in enumerate(steps):
        records = step(records)
        assert told(records) == after, f"step {number}"
        assert flaw(records) is None


def test_M4_normal_movement_is_the_diagram_of_the_seed() -> None:
    moved(
        "N2 C1 N3 C2 N4",
        (checkpoint, "N2 C1 N3 C2 N4 C3 N5"),
        (stable(2), "N3 C2 N4 C3 N5"),
        (stable(3), "N4 C3 N5"),
        (checkpoint, "N4 C3 N5 C4 N6"),
    )


def test_M4_the_stretch_of_a_stable_checkpoint_stands_before_it() -> None:
    records = row("N2 C1 N3")
    for number in range(2, 9):
        records = movement.cut(checkpoint(records), number)
        assert told(records[:2]) == f"N{number + 1} C{number}"


def test_M4_a_checkpoint_that_is_not_stable_yet_drops_nothing_of_its_own() -> None:
    moved("N2 C1 N3 C2 N4 C3 N5", (stable(1), "N2 C1 N3 C2 N4 C3 N5"))


def test_M5_nothing_is_dropped_while_fenced() -> None:
    """The seed's EC_2/EC_3 diagram: no cut until an epoch starts, and then at once."""
    moved(
        "N2 C1 N3",
        (fence(2), "N2 C1 N3 EC2"),
        (checkpoint, "N2 C1 N3 EC2 C2"),
        (stable(2), "N2 C1 N3 EC2 C2"),
        (fence(3), "N2 C1 N3 EC2 C2 EC3"),
        (start(3), "N3 EC2 C2 EC3 N4"),
    )


def test_M6_a_graceful_end_stands_right_behind_its_checkpoint() -> None:
    moved(
        "N2 C1 N3",
        (end, "C2 F2"),
        (fence(2), "C2 F2 EC2"),
        (start(2), "C2 F2 EC2 N3"),
        (checkpoint, "C2 F2 EC2 N3 C3 N5"),
        (stable(3), "C3 N5"),
        (checkpoint, "C3 N5 C4 N6"),
        (stable(4), "N5 C4 N6"),
    )


def test_M6_an_end_without_its_checkpoint_is_impossible() -> None:
    with pytest.raises(ImpossibleState):
        movement.cut(row("C1 N2 F1"), 1)


def test_M3_formatting_writes_a_checkpoint_and_an_end() -> None:
    assert told(FORMATTED) == "C0 F0"
    moved("C0 F0", (fence(1), "C0 F0 EC1"), (start(1), "C0 F0 EC1 N1"), (checkpoint, TAKEN))


TAKEN = "C0 F0 EC1 N1 C1 N3"


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ((), "no control records"),
        (row("N2 N3"), "no CHECKPOINT"),
        (row("C1 EC2"), "neither SEGMENT_START nor EPOCH_END"),
        ((row("C1")[0], replace(row("C1 N2")[1], sequence=2)), "control record 1 is missing"),
    ],
)
def test_M1_M3_what_cannot_be_a_log_is_told(records: Records, why: str) -> None:
    assert flaw(records) == why


@pytest.mark.parametrize("checkpoints", [1, 3])
def test_the_list_stays_short_over_many_epochs(checkpoints: int) -> None:
    records = FORMATTED
    for epoch in range(1, 200):
        records = start(epoch)(fence(epoch)(records))
        for _ in range(checkpoints):
            records = checkpoint(records)
        assert len(records) < 16
        assert flaw(records) is None


def test_M5_of_several_fences_in_a_row_the_last_says_all() -> None:
    once = movement.fenced(movement.FORMATTED, 2, 7)
    records = once
    for epoch in range(3, 50):
        records = movement.fenced(records, epoch, 7)
    assert len(records) == len(once)
    assert (records[-1].number, records[-1].epoch) == (49, 49)
    assert movement.is_fenced(records)
    assert movement.flaw(records) is None
