"""What would be given up with an entry, by all that is still known of it.

An entry of which every copy is damaged stops an election for ever.  Before a person gives it up the
coordinator tells how much that is: the entry alone where its header is left anywhere, else the
stretch that nobody can read any more.  What takes its place is told in `losing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shardlog.protocol.choice import Possible
from shardlog.protocol.entry import EntryId, Header, Member, unreadable
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import FenceAnswer, Slot


def loss_of(entry: EntryId, answers: Mapping[Member, FenceAnswer]) -> Header | None:
    """What exactly would be given up with `entry`, by all that the answers still know of it.

    None if they contradict that it may be: a copy has answered, or it is committed and nobody knows
    how far it reached.

    A stretch whose end is known, but not the checksum of its last entry, is given up as a tail, so
    that the log is cut: a marker could not take that checksum over, and a replica that has the
    entries would hold the same ids on another chain.  Only what is committed is never cut.
    """
    logs = [Possible(answer) for answer in answers.values()]
    if any(log.copy_end(*entry) is not None for log in logs):
        return None
    for answer in answers.values():
        for header in answer.damaged:
            if header.id == entry:
                return header
    committed = entry.offset < max(answer.commit for answer in answers.values())
    ends = {slot.end for slot in _stretches(entry, logs) if slot.end}
    if ends:
        end = min(ends)
        checksum = max(slot.checksum for slot in _stretches(entry, logs) if slot.end == end)
        if checksum or committed:
            stretch = unreadable(entry.epoch, entry.offset, end - entry.offset)
            return stretch._replace(checksum=checksum)
    return None if committed else unreadable(entry.epoch, entry.offset, 0)


def found(losses: Iterable[Header], answers: Mapping[Member, FenceAnswer]) -> tuple[EntryId, ...]:
    """The losses of which all entries have answered after all: nothing is to be lost by them."""
    logs = [Possible(answer) for answer in answers.values()]
    return tuple(lost.id for lost in losses if lost.count and _is_supplied(lost, logs))


def _is_supplied(lost: Header, logs: Sequence[Possible]) -> bool:
    at = lost.base
    while at < lost.end:
        copies = (log.copy_end(lost.epoch, at) for log in logs)
        reach = max((copy for copy in copies if copy is not None), default=None)
        if reach is None:
            return False
        at = reach
    return True


def _stretches(entry: EntryId, logs: Iterable[Possible]) -> Iterator[Slot]:
    """The bad slots that may hold the entry."""
    for log in logs:
        slot = log.slot_at(entry.offset)
        if slot is not None and slot.mark is not Mark.PRESENT and slot.epoch == entry.epoch:
            yield slot
