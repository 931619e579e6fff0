"""When those who append have to wait: for those who are behind, or for the leader's own disk.

A follower that was away, or a new node, is fed out of what the clients leave of the processor, the
network and the disk.  If they leave too little it falls further behind with every second, and a
shard that is written to without a pause would never be whole again.  So where the distance does not
fall although the follower takes what it is sent, appends are admitted a little slower from second
to second, down to a share of what they usually are, until it does.

What is not admitted waits here, in order, and is not refused: who appends sees a slower disk.  It
counts as under way for its connection and for the node, so it is bounded as ever.

One that takes hardly anything, because its own disk stalls say, is not waited for; and where giving
way has not helped for a while it ends, or clients would pay for nothing.

Two followers commit without the leader, so its disk may be the slowest of all and fall behind by
more than it may.  Long before that the gate is closed, until most of it is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from shardlog.protocol.messages import Append, Envelope

LOOK_S = 1.0
LEAST_SHARE = 0.75
"""Of what is usually appended: never less is admitted."""
STEP = 0.9
GAIN_LEAST = 0.1
"""The distance has to fall by so much of what is appended."""
GAIN_PLENTY = 0.4
TAKES_LEAST = 0.25
"""One that takes less of what is appended would not catch up anyway."""
VAIN_S = 20.0
REST_S = 60.0
BURST_BYTES = 1 << 20
BURST_S = 0.05
FORGET = 0.3


class GivingWay:
    """How many bytes a second may be appended to one shard; None for no bound."""

    __slots__ = (
        "_appended_bytes",
        "_at",
        "_end",
        "_passed_s",
        "_rest_s",
        "_usual_per_s",
        "_vain_s",
        "bytes_per_s",
    )

    def __init__(self) -> None:
        self.bytes_per_s: float | None = None
        # What is appended while nobody has to give way.
        self._usual_per_s = 0.0
        self._vain_s = 0.0
        self._rest_s = 0.0
        self._begin(0, None)

    def _begin(self, end: int, at: int | None) -> None:
        """A look: where the log ended then, and where the foremost of those behind was."""
        self._end, self._at = end, at
        self._passed_s = 0.0
        self._appended_bytes = 0

    def look(self, passed_s: float, appended_bytes: int, end: int, at: int | None) -> None:
        """`at` is where the foremost of those behind is; None if nobody is."""
        self._passed_s += passed_s
        self._appended_bytes += appended_bytes
        self._rest_s = max(self._rest_s - passed_s, 0.0)
        if at is None:
            self.bytes_per_s = None
            self._vain_s = 0.0
        if (at is None) == (self._at is None) and self._passed_s < LOOK_S:
            return
        appended_per_s = self._appended_bytes / self._passed_s
        if at is None and self._at is None:
            self._usual_per_s += (appended_per_s - self._usual_per_s) * FORGET
        elif at is not None and self._at is not None and at >= self._at and end > self._end:
            self._judge(appended_per_s, end - self._end, at - self._at)
        self._begin(end, at)

    def _judge(self, appended_per_s: float, appended: int, came: int) -> None:
        """Records that were appended, and that came to the one behind, since the last look."""
        bound = self.bytes_per_s
        if bound is None:
            self._usual_per_s = max(self._usual_per_s, appended_per_s)
        least = self._usual_per_s * LEAST_SHARE
        gained = came - appended
        if gained >= appended * GAIN_LEAST:
            self._vain_s = 0.0
            if bound is not None and gained >= appended * GAIN_PLENTY:
                bound /= STEP
                self.bytes_per_s = bound if bound < self._usual_per_s else None
        elif came < appended * TAKES_LEAST or self._rest_s > 0:
            self.bytes_per_s = None
        else:
            if bound is not None and bound <= least:
                self._vain_s += self._passed_s
            self.bytes_per_s = max((bound or appended_per_s) * STEP, least)
            if self._vain_s >= VAIN_S:
                self.bytes_per_s, self._vain_s, self._rest_s = None, 0.0, REST_S


class Gate:
    """Appends to one shard, which pass at once unless they have to give way, or it is `closed`."""

    __slots__ = ("_held", "_left_bytes", "closed", "way")

    def __init__(self) -> None:
        self.way = GivingWay()
        self.closed = False
        self._held: deque[Envelope] = deque()
        self._left_bytes = 0.0

    @property
    def narrow(self) -> bool:
        """Whether something is held back, or may have to be."""
        return self.closed or self.way.bytes_per_s is not None or bool(self._held)

    def admit(self, envelopes: Sequence[Envelope]) -> list[Envelope]:
        """Those that may go on; appends keep their order."""
        passed = [each for each in envelopes if type(each.message) is not Append]
        self._held += [each for each in envelopes if type(each.message) is Append]
        return passed + self._freed()

    def refill(self, passed_s: float) -> list[Envelope]:
        """Those that may go on now that time has passed."""
        per_s = self.way.bytes_per_s
        if per_s is not None:
            most = max(BURST_BYTES, per_s * BURST_S)
            self._left_bytes = min(self._left_bytes + per_s * passed_s, most)
        return self._freed()

    def _freed(self) -> list[Envelope]:
        freed = []
        bound = self.way.bytes_per_s is not None
        while self._held and not self.closed and (not bound or self._left_bytes > 0):
            each = self._held.popleft()
            assert isinstance(each.message, Append)
            self._left_bytes -= len(each.message.body)
            freed.append(each)
        if not bound:
            self._left_bytes = 0.0
        return freed
