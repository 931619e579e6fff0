"""Every bound of a client, with its unit in the name."""

from __future__ import annotations

from dataclasses import dataclass

from shardlog.transport.batch import PLAIN_BYTES_MAX
from shardlog.transport.connection import ConnectionLimits
from shardlog.transport.frames import FRAME_BYTES_MAX

REQUESTS_MAX = 32
"""Unanswered requests of one session: a leader keeps the replies of so many."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """`deadline_ms` is for every call that is given no other.

    A request that has been unanswered for `attempt_ms` makes the client ask who leads now.  A node
    that has said nothing for `silence_ms` is taken for lost.  On one connection `reads_max` reads
    may wait for an answer, and besides `tails_max` tails, which may have to wait for somebody to
    append.  `read_bytes` is asked for at once, or `long_read_bytes` while answers are
    long and come quickly; a reader holds up to `prefetch_bytes_max` and one answer more.
    """

    deadline_ms: int = 30_000
    attempt_ms: int = 1_000
    connect_ms: int = 1_000
    directory_ms: int = 1_000
    backoff_first_ms: int = 10
    backoff_most_ms: int = 200
    ping_after_ms: int = 400
    silence_ms: int = 1_200
    tail_wait_ms: int = 1_000
    reads_max: int = 8
    tails_max: int = 1_024
    read_bytes: int = 1 << 20
    long_read_bytes: int = 2 << 20
    read_entries_max: int = 1_024
    prefetch_bytes_max: int = 4 << 20
    record_bytes_max: int = (4 << 20) - 1024
    plain_bytes_max: int = PLAIN_BYTES_MAX
    frame_bytes_max: int = FRAME_BYTES_MAX
    outgoing_bytes_max: int = 16 << 20

    @property
    def tick_ms(self) -> int:
        """How often unanswered requests are looked at."""
        return max(1, self.attempt_ms // 4)

    @property
    def connection(self) -> ConnectionLimits:
        return ConnectionLimits(
            frame_bytes_max=self.frame_bytes_max,
            outgoing_bytes_max=self.outgoing_bytes_max,
            greeting_ms=self.connect_ms,
            ping_after_ms=self.ping_after_ms,
            silence_ms=self.silence_ms,
        )


LIMITS = ClientLimits()
"""Those of a client that is given no others."""
