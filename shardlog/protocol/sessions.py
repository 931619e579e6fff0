"""Client sessions: exactly once in spite of retries.

A session is opened by a REGISTER entry and named by that entry's offset, so a replayed register
opens another session and can never revive an old one.  Requests of a session are numbered from 1
and appended one by one; the table is a fold over the log's headers, hence the same on every
replica that holds the same log, and the reply to a retry is the offset that the first try got.

A leader keeps two tables: one folded to the commit offset, which is what checkpoints and
snapshots carry, and one folded to the end of the log, by which requests are admitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shardlog.protocol.entry import Header, Kind
from shardlog.protocol.failures import Refusal, ReplyForgotten, RequestGap, SessionUnknown


class Session(NamedTuple):
    """`last` is the last request appended; `replies` are the bases of the latest ones, up to it."""

    id: int
    last: int
    replies: tuple[int, ...]
    used: int


class OpenSession:
    """The same while it is used: every entry changes one, in place."""

    __slots__ = ("last", "replies", "used")

    def __init__(self, last: int, replies: Iterable[int], used: int) -> None:
        self.last = last
        self.replies = list(replies)
        self.used = used


_DATA = Kind.DATA  # looked up once: every entry asks

Sessions = tuple[Session, ...]
"""A table at rest, ordered by id: what goes into checkpoints and snapshot descriptors."""


class SessionTable:
    """A fold over the headers in `[0, applied)`."""

    __slots__ = ("applied", "replies_max", "sessions", "sessions_max")

    def __init__(self, sessions_max: int, replies_max: int) -> None:
        self.sessions_max = sessions_max
        self.replies_max = replies_max
        self.sessions: dict[int, OpenSession] = {}
        self.applied = 0

    @classmethod
    def at(
        cls, applied: int, sessions: Sessions, sessions_max: int, replies_max: int
    ) -> SessionTable:
        table = cls(sessions_max, replies_max)
        for each in sessions:
            table.sessions[each.id] = OpenSession(each.last, each.replies, each.used)
        table.applied = applied
        return table

    def at_rest(self) -> Sessions:
        return tuple(
            Session(id_, each.last, tuple(each.replies), each.used)
            for id_, each in sorted(self.sessions.items())
        )

    def copy(self) -> SessionTable:
        return self.at(self.applied, self.at_rest(), self.sessions_max, self.replies_max)

    def fold(self, headers: Iterable[Header]) -> None:
        """Apply the next headers; stops before a stretch that cannot be read."""
        sessions, most = self.sessions, self.replies_max
        for header in headers:
            kind, base = header.kind, header.base
            if kind is _DATA or (kind is Kind.LOST and header.request):
                known = sessions.get(header.session)
                if known is not None:
                    known.last, known.used = header.request, base
                    known.replies.append(base)
                    if len(known.replies) > most:
                        del known.replies[:-most]
            elif kind is Kind.REGISTER:
                self._register(base)
            elif kind is Kind.LOST:
                # Nobody knows whose requests were lost: none of the sessions can go on.
                sessions.clear()
            elif kind is Kind.UNKNOWN:
                return
            self.applied = base + header.count

    def _register(self, base: int) -> None:
        """Whoever was used longest ago makes room (T7)."""
        if len(self.sessions) >= self.sessions_max:
            oldest = min(self.sessions, key=lambda id_: self.sessions[id_].used)
            del self.sessions[oldest]
        self.sessions[base] = OpenSession(0, (), base)


def admit(table: SessionTable, session: int, request: int) -> int | Refusal | None:
    """None if the request is the session's next one, its base if it was appended before."""
    known = table.sessions.get(session)
    if known is None:
        return SessionUnknown(session)
    if request == known.last + 1:
        return None
    if request > known.last:
        return RequestGap(known.last + 1)
    back = known.last - request
    if back >= len(known.replies):
        return ReplyForgotten(known.last - len(known.replies) + 1)
    return known.replies[len(known.replies) - 1 - back]
