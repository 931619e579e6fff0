"""Control records, and when they may be dropped: the movement of the write-ahead log.

Entries stand in segments and leave only by truncate or trim; the records here say under which
promises they came to stand there.  A checkpoint is a state that need not be recomputed; a
SEGMENT_START says that an epoch is active and the next stretch may be written; EPOCH_END that it is
deliberately not; FENCED that a fence was answered, from which on nothing may be dropped until an
epoch is active again: a restarted replica must give the same answer.

The list is short, and is kept whole in every superblock copy, so that it is replaced atomically.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from shardlog.protocol.failures import ImpossibleState
from shardlog.storage.layout import RecordType


@dataclass(frozen=True, slots=True)
class Record:
    """`number` counts checkpoints, and is the epoch in FENCED; `offset` is where the log ended."""

    sequence: int
    type: RecordType
    number: int
    epoch: int
    offset: int


Records = tuple[Record, ...]

FORMATTED: Records = (
    Record(0, RecordType.CHECKPOINT, 0, 0, 0),
    Record(1, RecordType.EPOCH_END, 0, 0, 0),
)
"""What formatting writes (M3)."""


def is_fenced(records: Records) -> bool:
    """Whether no epoch is active since the last fence, so that nothing may be dropped (M5)."""
    for record in reversed(records):
        if record.type is RecordType.FENCED:
            return True
        if record.type in (RecordType.SEGMENT_START, RecordType.EPOCH_END):
            return False
    return False


def is_active(records: Records) -> bool:
    """Whether an epoch is active: the last thing that began is a stretch, not an end."""
    for record in reversed(records):
        if record.type in (RecordType.FENCED, RecordType.EPOCH_END):
            return False
        if record.type is RecordType.SEGMENT_START:
            return True
    return False


def last_checkpoint(records: Records) -> Record:
    for record in reversed(records):
        if record.type is RecordType.CHECKPOINT:
            return record
    raise ImpossibleState("a log without a checkpoint")


def _added(records: Records, type_: RecordType, number: int, epoch: int, offset: int) -> Records:
    return (*records, Record(records[-1].sequence + 1, type_, number, epoch, offset))


def fenced(records: Records, epoch: int, offset: int) -> Records:
    """A fence is about to be answered; of several in a row the last says all."""
    if records[-1].type is RecordType.FENCED:
        return (*records[:-1], replace(records[-1], number=epoch, epoch=epoch, offset=offset))
    return _added(records, RecordType.FENCED, epoch, epoch, offset)


def activated(records: Records, epoch: int, offset: int) -> Records:
    """An epoch became active: the next stretch may be written, and what waited may be dropped."""
    stable = last_checkpoint(records).number
    begun = [record.number for record in records if record.type is RecordType.SEGMENT_START]
    number = min(max([stable, *begun]) + 1, stable + 2)
    return cut(_added(records, RecordType.SEGMENT_START, number, epoch, offset), stable)


def checkpointed(records: Records, epoch: int, offset: int) -> Records:
    """A checkpoint was computed; while an epoch is active the stretch after next may begin."""
    number = last_checkpoint(records).number + 1
    active = is_active(records)
    taken = _added(records, RecordType.CHECKPOINT, number, epoch, offset)
    if not active:
        return taken
    return _added(taken, RecordType.SEGMENT_START, number + 2, epoch, offset)


def cut(records: Records, stable: int) -> Records:
    """Checkpoint `stable` is on disk: drop what stands before its stretch began (M4).

    The stretch behind checkpoint r is SEGMENT_START(r + 1); it was begun when the checkpoint
    before r was taken, so it stands before CHECKPOINT(r) and keeps it.
    """
    if is_fenced(records):
        return records
    if records[-1].type is RecordType.EPOCH_END:
        return _cut_to_end(records)
    for at, record in enumerate(records):
        if record.type is RecordType.SEGMENT_START and record.number >= stable + 1:
            kept = records[at:]
            return kept if any(r.type is RecordType.CHECKPOINT for r in kept) else _from(records)
    return records


def _from(records: Records) -> Records:
    """A stretch that began behind the only checkpoint: both are kept."""
    checkpoint = last_checkpoint(records)
    return records[records.index(checkpoint) :]


def ended(records: Records, epoch: int, offset: int) -> Records:
    """A graceful end: EPOCH_END right behind its CHECKPOINT, and a cut to it (M6)."""
    number = last_checkpoint(records).number + 1
    taken = _added(records, RecordType.CHECKPOINT, number, epoch, offset)
    return cut(_added(taken, RecordType.EPOCH_END, number, epoch, offset), number)


def _cut_to_end(records: Records) -> Records:
    if len(records) < 2 or records[-2].type is not RecordType.CHECKPOINT:
        raise ImpossibleState("an end of an epoch without its checkpoint")
    return records[-2:]


def flaw(records: Records) -> str | None:
    """Why this cannot be a write-ahead log's control part (M1, M3); None if it can."""
    if not records:
        return "no control records"
    for before, after in pairwise(records):
        if after.sequence != before.sequence + 1:
            return f"control record {before.sequence + 1} is missing"
    types = {record.type for record in records}
    if RecordType.CHECKPOINT not in types:
        return "no CHECKPOINT"
    if not types & {RecordType.SEGMENT_START, RecordType.EPOCH_END}:
        return "neither SEGMENT_START nor EPOCH_END"
    return None
