"""One small world: its state, everything that can happen next, and what must hold.

A state is a tuple of integers, each the number of a value that has been met before:

    replicas | their disks | coordinators | metadata | canonical chain | leaders by epoch |
    writes left, crashes left, commands given | messages in flight, in order

Machines are pure, so what an event does to a machine is worked out once and remembered by the two
numbers.  A disk counts only as long as a crash may still come.  The chain of everything ever
committed and the leaders of all epochs are history, kept so that the invariants, which are those
of `checkers`, can be judged from one state and one step.  Acknowledged writes need no record of
their own: an acknowledgement is checked against the chain when it is given, and the chain against
every later leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shardlog.protocol.coordination import Command, Commanded
from shardlog.protocol.effects import Received, Tick
from shardlog.protocol.entry import Kind, Member
from shardlog.protocol.failures import StaleEpoch
from shardlog.protocol.messages import (
    Append,
    Appended,
    BecameLeader,
    Commit,
    Envelope,
    Prepare,
    Refused,
    StatusRequest,
)
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.states import Role
from shardlog.sim import explore_coordinators as coordinators
from shardlog.sim import explore_replicas as replicas
from shardlog.sim.checkers import _check_record
from shardlog.sim.explore_coordinators import Learn, Polled, Store, Suspect
from shardlog.sim.explore_messages import (
    ONCE,
    Flight,
    dead_for_coordinator,
    dead_for_replica,
)
from shardlog.sim.explore_replicas import EMPTY_IMAGE, SHARD, Image
from shardlog.sim.explore_values import Names, Numbers, canonical
from shardlog.sim.failures import SafetyFailure, SimulationFailure, CrashFailure

CLIENT = "client"

State = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the world is."""

    nodes: tuple[str, ...]
    coordinators: tuple[str, ...] = ("x",)
    epochs: int = 3
    writes: int = 2
    crashes: int = 1
    commands: tuple[Command, ...] = ()
    polls: bool = False
    interchangeable: tuple[tuple[str, ...], ...] = ()


class Link(NamedTuple):
    """An entry of the canonical chain."""

    base: int
    checksum: int
    epoch: int
    committed_in: int
    session: int
    request: int


class Face(NamedTuple):
    """What the world needs to know of a replica without loading it."""

    member: Member
    epoch: int
    leads: bool
    serving: bool
    cursors: tuple[Member, ...]


class Step(NamedTuple):
    """A step of a replica, in numbers; `disk` is the number of what it wrote."""

    after: int
    sent: tuple[int, ...]
    replies: tuple[Appended, ...]
    disk: int


class Crash(NamedTuple):
    witness: int
    after: int
    image: int
    sent: tuple[int, ...]
    replies: tuple[Appended, ...]


class Drive(NamedTuple):
    """A step of a coordinator, in numbers."""

    after: int
    store: int
    sent: tuple[int, ...]


class Action(NamedTuple):
    """What happened, for a transcript: who took which event, and how it went on."""

    who: str
    event: Any
    note: str = ""
