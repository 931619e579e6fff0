"""What somebody who only looks at a replica's files has to say about them.

Not everything that is out of the ordinary is damage.  A crash leaves behind what the next start
finishes or removes; that is told, and is well.  Damage is what was durable and has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shardlog.protocol.entry import Header
from shardlog.protocol.log import Mark


class Consequence(Enum):
    """What comes of a finding; the name is for programs, the value for people."""

    FINISHED = "finished at the next start"
    REMOVED = "removed at the next start"
    IGNORED = "left alone"
    MENDED = "written again at the next start"
    SPARED = "its entry is found without it"
    REPAIR = "repairable from another replica"
    REPLACE = "the replica must be replaced"


AFTER_A_CRASH = frozenset({Consequence.FINISHED, Consequence.REMOVED, Consequence.IGNORED})


@dataclass(frozen=True, slots=True)
class Finding:
    """Something at byte `position` of a file that a clean stop would not have left so."""

    path: str
    position: int
    what: str
    consequence: Consequence

    @property
    def is_damage(self) -> bool:
        return self.consequence not in AFTER_A_CRASH

    def __str__(self) -> str:
        return f"{self.path}:{self.position}: {self.what}; {self.consequence.value}"


@dataclass(frozen=True, slots=True)
class Found:
    """One entry and where it stands, or a stretch of offsets that cannot be read.

    A stretch has a header of kind UNKNOWN; a count of 0 says that it is the tail, and that nobody
    knows how far it reached.
    """

    header: Header
    mark: Mark
    path: str
    position: int
    length: int
