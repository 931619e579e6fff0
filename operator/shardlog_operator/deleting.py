"""The end of a Shard: what its finalizer waits for.

With `Retain` nothing happens to the shard: record and data stay, it goes on serving, and a Shard of
that name made again takes it over as it is.  With `Delete` every replica is destroyed, and the
Shard goes when the record is gone.  A node that does not answer is waited for, but not for ever:
if only nodes are left that are lost for longer than the grace period, the Shard goes.  The record
stays until they come back and destroy what they have: nothing of it may be taken for another's.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardlog.protocol.coordination import DeleteShard
from shardlog.protocol.shard import Shard, Status
from shardlog_operator.placing import Places
from shardlog_operator.planning import Waiting
from shardlog_operator.spec import Deletion, ShardSpec


@dataclass(frozen=True, slots=True)
class Ending:
    """`done`: nothing more is to be done, the Shard may go."""

    done: bool = False
    reason: str = ""
    message: str = ""
    command: DeleteShard | None = None
    waiting: Waiting | None = None


def ending(spec: ShardSpec, record: Shard | None, places: Places) -> Ending:
    if record is None:
        return Ending(True, "Deleted", "no replica is left")
    if spec.deletion is Deletion.RETAIN:
        nodes = ", ".join(member.node for member in record.ensemble)
        told = f"record and data stay on {nodes}: a Shard {spec.name} made again takes them over"
        return Ending(True, "Retained", told)
    if record.halted:
        told = (
            f"halted, so its replicas are not destroyed: {record.halted}; "
            "with deletionPolicy Retain the Shard goes and they stay"
        )
        return Ending(waiting=Waiting("Halted", told, stuck=True))
    if record.status is not Status.DELETING:
        told = "every replica is destroyed: deletionPolicy is Delete"
        return Ending(reason="Deleting", message=told, command=DeleteShard())
    left = sorted({member.node for member in record.removed})
    if left and all(places.must_leave(node) == "NodeLost" for node in left):
        told = f"all replicas but those on {', '.join(left)}: lost, and destroyed when it is back"
        return Ending(True, "Deleted", told)
    return Ending(waiting=Waiting("Deleting", f"replicas are destroyed on {', '.join(left)}"))
