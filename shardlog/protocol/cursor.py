"""Follow cursors: where each follower stands, as its leader knows it.

A cursor begins unannounced: the follower has to accept the leader's history first, and cut what
parts from it.  From then on its log is a prefix of the leader's, which is what lets one number,
`acked`, say everything.  What has been sent and not acknowledged is bounded, so a slow follower
never grows the leader's memory.
"""

from __future__ import annotations

from shardlog.protocol.effects import Limits
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.history import OPEN_END
from shardlog.protocol.log import Log
from shardlog.protocol.messages import Snapshot


class Cursor:
    """One follower or standby."""

    __slots__ = (
        "acked",
        "announced",
        "at",
        "beat",
        "cut",
        "durable",
        "gap",
        "heard_ms",
        "lost",
        "member",
        "next",
        "promised",
        "promised_beat",
        "sent_ms",
        "snapshot",
        "standby",
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
        self.heard_ms = 0
        self.beat = 0
        self.lost = False
        """It came back with less than it had acknowledged (rule 15): it is not to be used."""

    def unannounce(self, cut: int) -> None:
        """The epoch or the follower changed: announce again before anything else is sent."""
        self.announced = False
        self.cut = cut
        self.gap = -1
        self.sent_ms = -1

    def confirm(self, acked: int, at: int, now_ms: int, resend_ms: int) -> None:
        """The follower told where it is."""
        self.acked = max(self.acked, acked)
        self.at = max(at, self.acked)
        self.durable = self.acked if acked else at
        self.heard_ms = now_ms
        if not self.announced:
            self.announced = True
            self.next = at
            self.sent_ms = now_ms
        elif at < self.next and now_ms - self.sent_ms >= resend_ms:
            self.next = at
            self.sent_ms = now_ms
        self.next = max(self.next, at, self.acked)

    def rewind(self, expected: int) -> bool:
        """The follower lacks what begins at `expected`: whether to send it again at once.

        Every message behind a gap tells of it, and each would be answered with all of them: the
        first is, and if that does not help the follower's next sign of life will bring it about.
        """
        if expected == self.gap or not self.acked <= expected < self.next:
            return False
        self.gap = self.next = self.at = expected
        self.durable = min(self.durable, expected)
        return True

    def note_promise(self, beat: int) -> None:
        if self.acked > self.promised:
            self.promised, self.promised_beat = self.acked, beat

    def to_send(self, log: Log, limits: Limits) -> list[Header]:
        """The next batch, within the bounds; stops before an entry whose copy here is bad.

        Under way is what is not durable there, so a follower whose disk stalls gets no more.
        """
        if not self.announced or self.lost or self.next >= log.end:
            return []
        entries, size = log.load(max(self.durable, log.first), self.next)
        room = min(limits.batch_entries_max, limits.inflight_entries_max - entries)
        room_bytes = min(limits.batch_bytes_max, limits.inflight_bytes_max - size)
        batch: list[Header] = []
        expected = self.next
        marks = log.marks
        for header in log.between(expected, log.end, max(room, 0)):
            base = header.base
            room_bytes -= header.body_checksum >> 32
            if base != expected or base in marks:
                break
            if room_bytes < 0 and (batch or entries):
                break
            batch.append(header)
            expected = base + header.count
        return batch
