"""What is wrong with the data or the volumes of a shard, which nobody but a person can mend.

Pure.  It stands beside the plan and not in it: a shard with a damaged entry is scaled and moved on
like any other.  But it is not as it is wanted, so its conditions say which entry or volume it is,
and on which nodes; and there is an event when that begins and when it is over.

An election that is begun anew does not know at once what the one before it waited for, so what was
waited for is believed until a leader serves or something else is heard.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardlog.protocol import choice
from shardlog.protocol.failures import NO_SPACE
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.shard import Shard, Status
from shardlog_operator.events import Told
from shardlog_operator.planning import Waiting

AWAITED = "EntryAwaited"
DAMAGED = "EntryDamaged"
FULL = "VolumeFull"
Ailments = tuple[Waiting, ...]


def ailments(
    record: Shard | None,
    waiting: choice.Waiting | None,
    reports: Sequence[StatusReport],
    before: Ailments,
) -> Ailments:
    """The worst first: what may be lost, then what only waits for room."""
    if record is None or record.status is Status.DELETING:
        return ()
    found: list[Waiting] = []
    electing = record.status is Status.ELECTION
    if waiting is not None and waiting.entry is not None:
        found.append(Waiting(AWAITED if electing else DAMAGED, described(waiting), stuck=True))
    elif waiting is None and electing:
        found += [each for each in before if each.reason == AWAITED]
    nodes = full_nodes(waiting, reports)
    if nodes:
        found.append(Waiting(FULL, f"{NO_SPACE} of {', '.join(nodes)}", stuck=True))
    return tuple(found)


def described(waiting: choice.Waiting) -> str:
    """Which entry, on which nodes, is waited for."""
    entry = f": entry {waiting.entry.epoch}:{waiting.entry.offset}" if waiting.entry else ""
    nodes = ", ".join(member.node for member in waiting.members)
    return f"{waiting.reason}{entry}" + (f" on {nodes}" if nodes else "")


def full_nodes(waiting: choice.Waiting | None, reports: Sequence[StatusReport]) -> list[str]:
    """Those whose replica cannot write, or cannot even be made.

    The record may be older than what is waited for, so the reason alone says which it is.
    """
    found = {each.member.node for each in reports if each.full}
    if waiting is not None and waiting.reason == NO_SPACE:
        found |= {member.node for member in waiting.members}
    return sorted(found)


def news(record: Shard | None, before: Ailments, now: Ailments) -> tuple[list[Told], Ailments]:
    """What there is to tell, and what counts as told: nothing is over before a leader serves."""
    known = {each.reason: each for each in before}
    found = [
        Told(each.reason, each.message, warning=True)
        for each in now
        if each != known.pop(each.reason, None)
    ]
    if record is not None and record.status is not Status.STEADY:
        return found, (*now, *known.values())
    over = [Told("GoesOn", f"no longer so: {each.message}") for each in known.values()]
    return found + over, now
