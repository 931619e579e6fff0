"""The end of a shard, as the coordinator brings it about.

The intent is written first, with every replica that the record knows of on the list of those to
destroy; from then on nothing else is done for the shard.  Each replica is told until it is gone,
and only then is the record removed, so a coordinator that finds DELETING goes on with it.

Only an incarnation that stands in the record is ever destroyed.  A coordinator may wake up with the
record of a shard that has been deleted and made again since: whatever it still says is addressed to
replicas of the past.  That is why a replica whose incarnation was not known is written down before
it is destroyed, though the shard is to go.
"""

from __future__ import annotations

from shardlog.protocol.coordinator_state import CoordinatorState, changed
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import NoReplica
from shardlog.protocol.messages import Destroy, Destroyed, Envelope, Refused
from shardlog.protocol.quorum import Ensemble
from shardlog.protocol.shard import Shard, Status


def obey(c: CoordinatorState, record: Shard) -> None:
    """Whatever is under way ends with this write."""
    if record.status is Status.DELETING:
        c.accept()
        return
    c.write(
        changed(
            record,
            status=Status.DELETING,
            leader=None,
            change=None,
            phase=None,
            joining=None,
            removed=replicas(record),
            preferred=None,
        )
    )


def replicas(record: Shard) -> Ensemble:
    """All that may exist; the incarnation is 0 where a node may have been asked for one."""
    found = [*record.fencing_ensemble, *record.removed]
    if record.change and record.change.new:
        found.append(record.change.new)
    if record.joining:
        found.append(record.joining.member)
    return tuple(dict.fromkeys(found))


def drive(c: CoordinatorState, record: Shard) -> None:
    left, named = _left(c, record), _all_named(c, record)
    if not left:
        c.remove()
    elif named != record.removed:
        c.write(changed(record, removed=named))
    elif c.due_again():
        if len(left) < len(record.removed):
            # Some take their time: people can see in the record who is waited for.
            c.write(changed(record, removed=tuple(left)))
            return
        for member in left:
            c.send(member, Destroy())


def can_go_on(c: CoordinatorState, record: Shard) -> bool:
    """Whether something is to be written, rather than said again."""
    return not _left(c, record) or _all_named(c, record) != record.removed


def _left(c: CoordinatorState, record: Shard) -> list[Member]:
    return [member for member in record.removed if member not in c.gone]


def _all_named(c: CoordinatorState, record: Shard) -> Ensemble:
    return tuple(dict.fromkeys(_named(c, member) for member in record.removed))


def _named(c: CoordinatorState, member: Member) -> Member:
    if member.incarnation or member in c.gone:
        return member
    return Member(member.node, c.created.get(member.node, 0))


def heard(c: CoordinatorState, record: Shard, envelope: Envelope) -> None:
    """Nothing counts any more but that a replica is gone, or which one is there."""
    message = envelope.message
    if isinstance(message, Destroyed):
        c.gone.add(Member(envelope.src, message.incarnation))
    elif isinstance(message, Refused) and isinstance(message.refusal, NoReplica):
        asked, there = message.refusal.asked, message.refusal.incarnation
        if not asked and there:
            c.created[envelope.src] = there
        elif asked != there or not there:
            c.gone.add(Member(envelope.src, asked))
