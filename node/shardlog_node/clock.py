"""The clock that a node's replicas are given: monotonic, and led to the cluster's time.

It starts at the wall clock and goes on with the monotonic one.  Where it lies outside of what a
majority of the nodes' clocks agrees upon (`shardlog.protocol.cluster_clock`) it runs faster or
slower until it lies inside; it never jumps and never goes back, because the replicas' timeouts run
by it too.  While no majority agrees it runs on as it is.  Alone, a node agrees with its own wall
clock, and so follows it, however that is set.
"""

from __future__ import annotations

from collections.abc import Callable

from shardlog.protocol.cluster_clock import Interval, Sample, agreed, better, sampled

TOLERANCE_NS = 100_000_000
"""By how much a correct wall clock may be off."""
SLEW_DIVISOR = 10
"""The clock runs by at most a tenth faster or slower: no timeout minds."""
AGREE_EVERY_NS = 1_000_000_000
SAMPLE_AGE_MAX_NS = 30_000_000_000


class NodeClock:
    """`monotonic_ns` and `wall_ns` are the operating system's."""

    def __init__(self, monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._samples: dict[str, Sample] = {}
        self._at_ns = monotonic_ns()
        # Shown at `_at_ns`; never falls.
        self._shown_ns = wall_ns()
        self.agreed: Interval | None
        """What wall clocks show beyond our monotonic clock; None while no majority agrees."""
        self._agree(self._at_ns)

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        now_ns = self._monotonic_ns()
        if now_ns - self._agreed_ns >= AGREE_EVERY_NS:
            self._agree(now_ns)
        elapsed_ns = now_ns - self._at_ns
        shown_ns = self._shown_ns + elapsed_ns
        if self.agreed is not None:
            room_ns = elapsed_ns // SLEW_DIVISOR
            low_ns, high_ns = self.agreed
            if shown_ns < low_ns + now_ns:
                shown_ns += min(low_ns + now_ns - shown_ns, room_ns)
            elif shown_ns > high_ns + now_ns:
                shown_ns -= min(shown_ns - high_ns - now_ns, room_ns)
        self._at_ns = now_ns
        self._shown_ns = shown_ns
        return shown_ns // 1_000_000

    def sample(
        self, node: str, sent_monotonic_ns: int, received_monotonic_ns: int, remote_wall_ns: int
    ) -> None:
        """What the wall clock of another node showed between these two times.

        An event loop's time stands still during one turn, so the answer may have come later than
        it says.  It counts when the clocks are looked at next, once a second.
        """
        now_ns = max(received_monotonic_ns, self._monotonic_ns())
        if sent_monotonic_ns > now_ns:
            return
        new = sampled(sent_monotonic_ns, now_ns, remote_wall_ns)
        self._samples[node] = better(self._samples.get(node), new)

    @property
    def sources(self) -> int:
        """Clocks that are asked, our own among them."""
        return len(self._samples) + 1

    @property
    def ahead_of_wall_ns(self) -> int:
        """By how much this clock is ahead of this machine's own."""
        self.now_ms()
        return self._shown_ns - self._wall_ns()

    def _agree(self, now_ns: int) -> None:
        for node, sample in list(self._samples.items()):
            if now_ns - sample.taken_ns > SAMPLE_AGE_MAX_NS:
                del self._samples[node]
        ahead_ns = self._wall_ns() - now_ns
        clocks = [sample.aged(now_ns) for sample in self._samples.values()]
        self.agreed = agreed([Interval(ahead_ns, ahead_ns), *clocks], TOLERANCE_NS)
        self._agreed_ns = now_ns
