"""Processes that are held: stopped where they are, and let run a few milliseconds at a time.

What a program passes through too fast to be met, as an operator passes through the phases of a
change, is met by a hold: nothing of it runs between two steps, so that one can look at what it has
done so far, and kill it just there.  A program that is stepped takes a pause for a slow machine.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol


class Held(Protocol):
    """All processes of some pods, held since this was made."""

    def step(self, for_s: float) -> None:
        """Let all of them run for so long."""
        ...

    def let_go(self) -> None:
        """They go on as if nothing had been; those that are gone are let be."""
        ...

    def kill(self) -> None:
        """-9, where they are held: they do nothing more."""
        ...


@dataclass(frozen=True, slots=True)
class HeldProcesses:
    """Those of this machine, by their ids."""

    pids: Collection[int]

    def __post_init__(self) -> None:
        self._send(signal.SIGSTOP)

    def step(self, for_s: float) -> None:
        self._send(signal.SIGCONT)
        time.sleep(for_s)
        self._send(signal.SIGSTOP)

    def let_go(self) -> None:
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
