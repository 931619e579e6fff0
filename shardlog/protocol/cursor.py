"""Follow cursors: where each follower stands, as its leader knows it.

A cursor begins unannounced: the follower has to accept the leader's history first, and cut what
parts from it.  From then on its log is a prefix of the leader's, which is what lets one number,
`acked`, say everything.  What has been sent and not acknowledged is bounded, so a slow follower
never grows the leader's memory.
"""

from __future__ import annotations

from typing import NamedTuple

from shardlog.protocol.effects import Limits
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.protocol.history import OPEN_END
from shardlog.protocol.log import Log
from shardlog.protocol.messages import Snapshot


class Batch(NamedTuple):
    """Entries that were sent together: where they end, how many, and the bytes of their bodies."""

    end: int
    entries: int
    bytes: int


class Cursor:
    """One follower or standby."""

    __slots__ = (
        "acked",
        "announced",
        "at",
        "beat",
        "cut",
        "durable",
        "fed",
        "flight",
        "flight_bytes",
        "flight_entries",
        "gap",
        "heard_ms",
        "lost",
        "member",
        "next",
        "promised",
        "promised_beat",
        "sent_beat",
        "sent_bytes",
        "sent_ms",
        "snapshot",
        "standby",
        "starved",
        "typical_bytes",
    )

    def __init__(self, member: Member, standby: bool, cut: int = OPEN_END) -> None:
        self.member = member
        self.standby = standby
        self.cut = cut
        """Where its log parts from ours; OPEN_END if it is known to be a prefix."""
        self.snapshot: Snapshot | None = None
        self.announced = False
        self.acked = 0
        """Durable there, by its last word."""
        self.promised = 0
        """The highest it ever acknowledged, and the heartbeat after which it did so."""
        self.promised_beat = 0
        self.at = 0
        self.durable = 0
        """The same as `acked`; one who never acks tells only where it is, and that has to do."""
        self.next = 0
        """The next offset to send: acked ≤ next ≤ the log's end."""
        self.gap = -1
        """The last gap that was told and filled at once."""
        self.sent_ms = 0
        self.sent_beat = 0
        """The last heartbeat before the last entries: one who echoes a later one has got them."""
        self.heard_ms = 0
        self.beat = 0
        self.flight: list[Batch] = []
        """What was sent and is not durable there, oldest first, and its sums."""
        self.flight_entries = 0
        self.flight_bytes = 0
        self.sent_bytes = 0
        """All that was ever sent to it, headers included."""
        self.typical_bytes = 0
        """Of the bodies sent last, each."""
        self.starved = False
        """It lacks old entries that nobody may send right now."""
        self.fed = False
        """The last batch was of those."""
        self.lost = False
        """It came back with less than it had acknowledged (rule 15): it is not to be used."""

    def unannounce(self, cut: int) -> None:
        """The epoch or the follower changed: announce again before anything else is sent."""
        self.announced = False
        self.cut = cut
        self.gap = -1
        self.sent_ms = -1

    def confirm(
        self, acked: int, at: int, now_ms: int, resend_ms: int, passed: bool = False
    ) -> None:
        """The follower told where it is; it is sent again what has not come for a while.

        At once if it has `passed`, heard something that was sent behind it.
        """
        self.acked = max(self.acked, acked)
        if at > self.at:
            self.sent_ms = now_ms
        self.at = max(at, self.acked)
        self.durable = self.acked if acked else at
        self.heard_ms = now_ms
        if not self.announced:
            self.announced = True
            self._send_from(at)
            self.sent_ms = now_ms
        elif at < self.next and (passed or now_ms - self.sent_ms >= resend_ms):
            self._send_from(at)
            self.sent_ms = now_ms
        self.next = max(self.next, at, self.acked)
        self._landed()

    def rewind(self, expected: int) -> bool:
        """The follower lacks what begins at `expected`: whether to send it again at once.

        Every message behind a gap tells of it, and each would be answered with all of them: the
        first is, and if that does not help the follower's next sign of life will bring it about.
        """
        if expected == self.gap or not self.acked <= expected < self.next:
            return False
        self.gap = self.at = expected
        self._send_from(expected)
        self.durable = min(self.durable, expected)
        return True

    def _send_from(self, offset: int) -> None:
        """What was sent behind it is sent again."""
        self.next = offset
        while self.flight and self.flight[-1].end > offset:
            self._forget(self.flight.pop())

    def _landed(self) -> None:
        while self.flight and self.flight[0].end <= self.durable:
            self._forget(self.flight.pop(0))

    def land_all(self) -> None:
        """As if all that was sent had come."""
        self.flight.clear()
        self.flight_entries = self.flight_bytes = 0

    def _forget(self, batch: Batch) -> None:
        self.flight_entries -= batch.entries
        self.flight_bytes -= batch.bytes

    def note_promise(self, beat: int) -> None:
        if self.acked > self.promised:
            self.promised, self.promised_beat = self.acked, beat

    def to_send(
        self, log: Log, limits: Limits, commit: int = 0, feed_bytes: int | None = None
    ) -> list[Header]:
        """The next batch, within the bounds; stops before an entry whose copy here is bad.

        Under way is what is not durable there, so a follower whose disk stalls gets no more, and
        one that lacks what is at rest gets no less at once than fits into a message.  One that is
        far behind gets no more of what is committed than the driver allows: it must not
        take the leader's time from those that write.
        """
        self.starved = self.fed = False
        if not self.announced or self.lost or self.next >= log.end:
            return []
        under_way = self.flight_entries
        room = min(limits.batch_entries_max, limits.inflight_entries_max - under_way)
        room_bytes = min(limits.batch_bytes_max, limits.inflight_bytes_max - self.flight_bytes)
        left_bytes = limits.batch_bytes_max
        if feed_bytes is not None and self._is_far_behind(log, limits, commit):
            self.fed = True
            left_bytes = min(left_bytes, feed_bytes)
            self.starved = left_bytes <= 0
            if self.starved:
                return []
        if room <= 0 or (room_bytes <= 0 and under_way):
            return []
        short = room < limits.batch_entries_max or room_bytes < limits.batch_bytes_max
        if short and under_way and self.next < log.kept_from:
            return []  # it would be written and synced by itself, and there is much more to come
        if self.next < log.kept_from and self.typical_bytes:
            # Headers at rest are dear, so no more are asked for than are likely to be sent.
            likely = min(room_bytes, left_bytes) // self.typical_bytes + 1
            room = min(room, max(likely, 1))
        batch: list[Header] = []
        expected = self.next
        marks = log.marks
        for header in log.between(expected, log.end, room):
            base = header.base
            room_bytes -= header.body_checksum >> 32
            if base != expected or base in marks:
                break
            if room_bytes < 0 and (batch or under_way):
                break
            if batch and left_bytes <= 0:
                break
            left_bytes -= header.body_checksum >> 32
            batch.append(header)
            expected = base + header.count
        return batch

    def _is_far_behind(self, log: Log, limits: Limits, commit: int) -> bool:
        """What is next is committed, and there is more than may be under way at all."""
        if self.next < log.kept_from:
            return True
        return self.next < commit and log.load(self.next, log.end)[1] > limits.inflight_bytes_max

    def sent(self, batch: list[Header], now_ms: int, beat: int = 0) -> int:
        """They are on their way; how many bytes that are, headers included."""
        bodies = sum([header.body_checksum >> 32 for header in batch])
        size = bodies + len(batch) * ENTRY_HEADER_BYTES
        self.next = batch[-1].end
        self.sent_ms = now_ms
        self.sent_beat = beat
        self.sent_bytes += size
        self.flight.append(Batch(self.next, len(batch), bodies))
        self.flight_entries += len(batch)
        self.flight_bytes += bodies
        self.typical_bytes = bodies // len(batch)
        return size
