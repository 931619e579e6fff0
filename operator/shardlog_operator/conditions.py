"""Conditions by the conventions of the Kubernetes API.

`lastTransitionTime` changes with the status alone, so that a condition tells since when it holds;
reason and message may change under it.  Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = Any


class Truth(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, holds: bool | None) -> Truth:
        if holds is None:
            return cls.UNKNOWN
        return cls.TRUE if holds else cls.FALSE


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: Truth
    reason: str
    message: str = ""


def merged(
    before: Sequence[Json], now: Iterable[Condition], generation: int, at: str
) -> list[Json]:
    """The conditions as they are now, each with the time since when it has had its status.

    Those that are not told any more are left out; `at` is now, as the API writes it.
    """
    known = {each["type"]: each for each in before}
    found = []
    for condition in now:
        old = known.get(condition.type)
        same = old is not None and old.get("status") == condition.status
        since = old["lastTransitionTime"] if old is not None and same else at
        found.append(
            {
                "type": condition.type,
                "status": condition.status.value,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": since,
            }
        )
    return found
