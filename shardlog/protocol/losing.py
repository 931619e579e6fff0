"""What is given up when nobody has it any more, and what stands in its place.

An entry of which every copy is damaged stops an election for ever, for it may have been committed.
The only way on is that a person accepts the loss of that very entry.  Nothing else is lost by it:
the log is not cut, and no offset is given twice.  A *marker* takes the entry's place.  It has the
entry's id and its checksum, which the entry behind it still names as its parent, or which those
who know its header still tell; so the chain holds, histories and commit offsets stay true, and a
replica that was away and has the entry after all follows the same log.

A loss is told as the header of what was lost.  Where no header is left either it is a stretch of
kind UNKNOWN: how far it reaches, and the checksum of the entry that ended it.  Where the log may
end in the stretch, so that nobody knows how far it reaches, its count is 0, and it is cut there:
nothing below anybody's commit offset is ever given up like that.
"""

from __future__ import annotations

from shardlog.protocol import following
from shardlog.protocol.entry import Entry, EntryId, Header, Kind, marker
from shardlog.protocol.failures import Refusal
from shardlog.protocol.history import epoch_at
from shardlog.protocol.leadership import Leadership
from shardlog.protocol.log import Log
from shardlog.protocol.replica_state import ReplicaState


def settle(r: ReplicaState, lead: Leadership) -> bool:
    """Put markers where what was given up would stand; whether anything was written.

    Only in the place of a bad copy, or of none: what is whole here, or elsewhere, was not lost.
    """
    wrote = False
    for lost in sorted(lead.losses):
        if lost.id in lead.found:
            continue
        if lost.count and epoch_at(lead.kept.history, lost.base) == lost.epoch:
            wrote = _mark(r, lead, lost) or wrote
    if wrote and r.log.open_tail:
        r.tail_until = lead.kept.end
        following.close_tail(r)
    return wrote


def needless(r: ReplicaState, lead: Leadership) -> tuple[EntryId, ...]:
    """The losses that stand in our log after all, so that nobody needs the permit any more.

    It would be taken the next time that just these entries are damaged, without a word (rule 23).
    """
    return tuple(lost.id for lost in lead.losses if _stands(r.log, lost))


def _stands(log: Log, lost: Header) -> bool:
    """Whether all entries are there; of a tail the first, or a marker behind which it goes on."""
    found = log.between(lost.base, max(lost.end, lost.base + 1))
    if not found or found[0].id != lost.id or found[-1].end < lost.end:
        return False
    gone = (Kind.LOST, Kind.UNKNOWN) if lost.count else (Kind.UNKNOWN,)
    return all(each.kind not in gone and each.base not in log.marks for each in found)


def leaves_sessions_in_doubt(lead: Leadership) -> bool:
    """Whether a loss without headers lies where the table of sessions was not started over since.

    Replicas that have a marker there, and one that has the entries after all, have other tables.
    What is lost may be such a marker itself.
    """
    return any(
        (lost.kind is Kind.UNKNOWN or (lost.kind is Kind.LOST and not lost.request))
        and lost.count
        and lost.base >= lead.tip.limits.since
        and epoch_at(lead.kept.history, lost.base) == lost.epoch
        for lost in lead.losses
    )


def _mark(r: ReplicaState, lead: Leadership, lost: Header) -> bool:
    log, base = r.log, lost.base
    is_bad = base in log.marks
    is_next = base == log.end and not log.open_tail and lost.end <= lead.kept.end
    before = log.covering(base - 1) if base > log.first else None
    if not (is_bad or is_next) or (before is not None and before.kind is Kind.UNKNOWN):
        return False
    parent = before.checksum if before is not None else log.boundary
    entry = Entry(marker(r.seal, lost, parent, before.timestamp_ms if before else 0), b"")
    refusal: Refusal | None
    if is_bad:
        refusal = following.repair(r, entry)
    else:
        refusal = log.refusal_to_append(entry.header)
        if refusal is None:
            log.append(entry.header)
            r.gather(entry)
    return refusal is None
