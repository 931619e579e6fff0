"""Failures that have not reached their caller: what `flush` and `close` still have to raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from shardlog.client.failures import ClientFailure

F = TypeVar("F", bound="asyncio.Future[Any] | Future[Any]")
FAILURES_MAX = 32
"""So many are remembered; the first are the ones that matter."""


class UnseenFailures(Generic[F]):
    """A failure is seen when the exceptions of all its futures have been retrieved.

    `seen` says that of one future.
    """

    def __init__(self, seen: Callable[[F], bool]) -> None:
        self._seen = seen
        self._failures: list[tuple[ClientFailure, Sequence[F]]] = []

    def add(self, failure: ClientFailure, futures: Sequence[F]) -> None:
        self._failures = [each for each in self._failures if not self._is_seen(each[1])]
        if len(self._failures) < FAILURES_MAX:
            self._failures.append((failure, futures))
        else:
            silence(futures)

    def take(self) -> ClientFailure | None:
        """The first that nobody has seen; all are forgotten."""
        failures, self._failures = self._failures, []
        unseen = [failure for failure, futures in failures if not self._is_seen(futures)]
        for _, futures in failures:
            silence(futures)
        return unseen[0] if unseen else None

    def _is_seen(self, futures: Sequence[F]) -> bool:
        return all(self._seen(future) for future in futures)


def silence(futures: Sequence[F]) -> None:
    """Retrieve the exceptions, so that asyncio does not log them."""
    for future in futures:
        if future.done() and not future.cancelled():
            future.exception()
