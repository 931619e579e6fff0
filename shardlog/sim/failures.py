"""How a simulated run can fail.

Each kind has an exit code of its own, because each calls for another answer: a safety failure is
a wrong protocol, a liveness failure a stuck one, a crash a machine that met a state it calls
impossible.
"""

from __future__ import annotations


class SimulationFailure(Exception):  # noqa: N818 - named after what happened
    """Base of the three; `str()` is one line for a person."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def headline(self) -> str:
        return f"{type(self).__name__}: {self.text}"


class LegalEnd(SimulationFailure):
    """No failure: a fault has left the shard where it may rightly stop."""


class SafetyFailure(SimulationFailure):
    """A checker saw something that must never be."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker

    def __reduce__(self) -> tuple[type[SafetyFailure], tuple[str, str]]:
        return SafetyFailure, (self.checker, self.text.removeprefix(f"{self.checker}: "))


class LivenessFailure(SimulationFailure):
    """The faults ended, the data is within reach, and still nothing moves."""


class CrashFailure(SimulationFailure):
    """A machine raised an exception."""
