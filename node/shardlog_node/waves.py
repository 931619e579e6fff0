"""Appends of many clients that go together.

A client with one append under way at a time sends the next when it has been answered.  Many of
them, each served as it comes, fall apart into small groups; and whatever a group holds, it costs
two syncs on every node, a message to every follower and a message back.  So where many clients
come back at once, their appends wait for each other: until all that were here together last time
are here again, until it is much, or for a moment.

A client that is alone waits for nobody, and nobody waits where clients take their time: who comes
when he likes would wait for others that come when they like.  Nor does anybody wait for one who has
much to append, or several appends under way.  When a moment has passed in vain nobody waits for a
while, which is twice as long each time.
"""

from __future__ import annotations

from shardlog.protocol.messages import Envelope

CLIENTS_LEAST = 2
LONE_BYTES_MAX = 4 << 10
"""A longer append goes by itself."""
BYTES_ENOUGH = 64 << 10
"""So much is a group of its own."""
LOOK_S = 0.003
"""For those who are not under way: they have been answered and may have gone."""
LOOKS_MAX = 5
"""For those who are."""
BACK_S = 0.005
"""Who appends again so soon after an answer has waited for it."""
BACK_LEAST = 0.75
"""Of late so many of the appends have to have come so soon."""
BACK_WEIGHT = 1 / 64
CAME_LEAST = 0.75
"""Of those who were expected: if fewer came, it was in vain."""
VAIN_MAX = 64


class Wave:
    """Of one shard.  `present` counts the clients that have one short append here, unanswered."""

    __slots__ = ("_back", "_bytes", "_clients", "_expected", "_held", "_looks", "_skipped", "_vain",
                 "channels", "present")  # fmt: skip

    def __init__(self) -> None:
        # Who is bound to the shard, and so refers to this.
        self.channels = 0
        self.present = 0
        self._expected = 0
        self._held: list[Envelope] = []
        self._clients: set[str] = set()
        self._bytes = 0
        self._looks = 0
        # How many of the last appends came right after an answer.
        self._back = 0.0
        # Appends for which nobody waits, and how long that will be the next time.
        self._skipped = 0
        self._vain = 1

    def admit(self, envelope: Envelope, size: int, back: bool) -> list[Envelope]:
        """Those that go now, in order; nobody, if this one waits for others."""
        self._back += (back - self._back) * BACK_WEIGHT
        if self.present > self._expected:
            self._expected = self.present
        if not self._held and not self._is_worth_it():
            return [envelope]
        self._held.append(envelope)
        self._clients.add(envelope.src)
        self._bytes += size
        if len(self._clients) < self._expected and self._bytes < BYTES_ENOUGH:
            return []
        self._vain = max(self._vain - 1, 1)
        return self.release()

    def go_by(self, envelope: Envelope) -> list[Envelope]:
        """An append that waits for nobody; those that wait go with it, since it is a group now."""
        return [*self.release(), envelope] if self._held else [envelope]

    def _is_worth_it(self) -> bool:
        if self._expected < CLIENTS_LEAST or self._back < BACK_LEAST:
            return False
        self._skipped = max(self._skipped - 1, 0)
        return not self._skipped

    def goes_on(self) -> bool:
        """Whether to wait a little longer, for others that are under way."""
        self._looks += 1
        if self.present > len(self._clients) and self._looks < LOOKS_MAX:
            return True
        if len(self._clients) < CAME_LEAST * self._expected:
            self._skipped = self._vain * self._expected
            self._vain = min(2 * self._vain, VAIN_MAX)
        return False

    def release(self) -> list[Envelope]:
        """All that wait, in order; whoever is here now is expected the next time."""
        held, self._held = self._held, []
        self._clients.clear()
        self._bytes = self._looks = 0
        self._expected = self.present
        return held
