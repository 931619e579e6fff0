"""One rule taken away: functions of the protocol, replaced for as long as it is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from shardlog.sim.options import DEFAULT_PROFILE


@dataclass(frozen=True, slots=True)
class Mutant:
    """`ids` are the lines of the checklists that the rule belongs to.

    `seed` is one that caught it: tried first, and replaceable by any other that does.  Where two
    rules stand in for each other, so that nothing is lost without one of them, a mutant takes both.
    It is run with the options of `profile`.
    """

    name: str
    summary: str
    ids: tuple[str, ...]
    seed: int
    patches: tuple[tuple[object, str, Any], ...]
    profile: str = DEFAULT_PROFILE

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, attribute, replacement in self.patches:
                stack.enter_context(patch.object(target, attribute, replacement))
            yield


def always(value: object) -> Callable[..., object]:
    return lambda *_, **__: value
