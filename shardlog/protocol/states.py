"""The roles of a replica, and every legal change of role.

A transition that is not in the table is a bug in the replica, not a bad message: messages that do
not fit a role are refused before they get here.  The diagram in docs/protocol.md is generated
from this table.
"""

from __future__ import annotations

from enum import StrEnum

from shardlog.protocol.failures import ImpossibleState


class Role(StrEnum):
    NOT_MEMBER = "NOT_MEMBER"
    FENCED = "FENCED"
    FOLLOWER = "FOLLOWER"
    LEADER = "LEADER"
    STANDBY = "STANDBY"


class Cause(StrEnum):
    CREATE = "Create"
    FENCE = "Fence"
    ANNOUNCE = "Announce"
    ANNOUNCE_STANDBY = "Announce as standby"
    BECOME_LEADER = "BecomeLeader"
    STEP_DOWN = "told of a higher epoch, or cannot serve"
    DESTROY = "Destroy"


TRANSITIONS: dict[Role, dict[Cause, Role]] = {
    Role.NOT_MEMBER: {
        Cause.CREATE: Role.FENCED,
    },
    Role.FENCED: {
        Cause.FENCE: Role.FENCED,
        Cause.ANNOUNCE: Role.FOLLOWER,
        Cause.ANNOUNCE_STANDBY: Role.STANDBY,
        Cause.BECOME_LEADER: Role.LEADER,
        Cause.DESTROY: Role.NOT_MEMBER,
    },
    Role.FOLLOWER: {
        Cause.FENCE: Role.FENCED,
        Cause.ANNOUNCE: Role.FOLLOWER,
        Cause.ANNOUNCE_STANDBY: Role.STANDBY,
        Cause.DESTROY: Role.NOT_MEMBER,
    },
    Role.STANDBY: {
        Cause.FENCE: Role.FENCED,
        Cause.ANNOUNCE: Role.FOLLOWER,
        Cause.ANNOUNCE_STANDBY: Role.STANDBY,
        Cause.DESTROY: Role.NOT_MEMBER,
    },
    Role.LEADER: {
        Cause.FENCE: Role.FENCED,
        Cause.STEP_DOWN: Role.FENCED,
        Cause.ANNOUNCE: Role.FOLLOWER,
        Cause.ANNOUNCE_STANDBY: Role.STANDBY,
        Cause.DESTROY: Role.NOT_MEMBER,
    },
}
"""A restart, from any role with a replica, leads to FENCED (rule 1)."""


def next_role(role: Role, cause: Cause) -> Role:
    try:
        return TRANSITIONS[role][cause]
    except KeyError:
        raise ImpossibleState(f"{cause} is not legal for a replica that is {role}") from None


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> NOT_MEMBER"]
    for role, exits in TRANSITIONS.items():
        lines += [f"    {role} --> {target}: {cause}" for cause, target in exits.items()]
    lines += [f"    {role} --> FENCED: restart" for role in TRANSITIONS if role != Role.NOT_MEMBER]
    return "\n".join(lines) + "\n"
