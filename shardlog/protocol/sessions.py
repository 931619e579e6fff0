"""Client sessions: exactly once in spite of retries.

A session is opened by a REGISTER entry and named after that entry's checksum, which seals its epoch
and offset: a name is never given twice, not even where an accepted loss gives an offset again, and
a replayed register can never revive a session.  The entry also holds the client's nonce, so that a
registration that is sent again finds the session that the first try opened.

Requests of a session are numbered from 1 and appended one by one.  The table is a fold over the
log's headers, and so are its limits: the epoch start that names them starts the table over.  Hence
it is the same on every replica that holds the same log, and the reply to a retry is the offset that
the first try got.

A leader keeps two tables: one folded to the commit offset, which is what checkpoints and
snapshots carry, and one folded to the end of the log, by which requests are admitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shardlog.protocol.entry import Header, Kind
from shardlog.protocol.failures import Refusal, ReplyForgotten, RequestGap, SessionUnknown

NAME_MASK = (1 << 63) - 1
"""A name is a positive number in whatever language."""


class Session(NamedTuple):
    """`last` is the last request appended; `replies` are the bases of the latest ones, up to it.

    `used` is the base of its last entry, `nonce` what its client registered with.
    """

    id: int
    last: int
    replies: tuple[int, ...]
    used: int
    nonce: int = 0


class SessionLimits(NamedTuple):
    """How many sessions, and replies of each, are kept: the entry at the offset `since` says so."""

    sessions_max: int
    replies_max: int
    since: int


UNNAMED_LIMITS = SessionLimits(256, 32, 0)
"""Those of logs in which no epoch start names any.  Never changed: stored logs rest on them."""


class OpenSession:
    """The same while it is used: every entry changes one, in place."""

    __slots__ = ("last", "nonce", "replies", "used")

    def __init__(self, last: int, replies: Iterable[int], used: int, nonce: int) -> None:
        self.last = last
        self.replies = list(replies)
        self.used = used
        self.nonce = nonce


_DATA = Kind.DATA  # looked up once: every entry asks

Sessions = tuple[Session, ...]
"""A table at rest, ordered by id: what goes into checkpoints and snapshot descriptors."""


def session_of(register: Header) -> int:
    """The name of the session that a REGISTER entry opens.

    One without a nonce was written by an older Shardlog, which named sessions by their offsets.
    """
    return register.checksum & NAME_MASK or 1 if register.request else register.base


class SessionTable:
    """A fold over the headers in `[0, applied)`."""

    __slots__ = ("applied", "limits", "sessions")

    def __init__(self, limits: SessionLimits = UNNAMED_LIMITS) -> None:
        self.limits = limits
        self.sessions: dict[int, OpenSession] = {}
        self.applied = 0

    @classmethod
    def at(
        cls, applied: int, sessions: Sessions, limits: SessionLimits = UNNAMED_LIMITS
    ) -> SessionTable:
        table = cls(limits)
        for each in sessions:
            table.sessions[each.id] = OpenSession(each.last, each.replies, each.used, each.nonce)
        table.applied = applied
        return table

    def at_rest(self) -> Sessions:
        return tuple(
            Session(id_, each.last, tuple(each.replies), each.used, each.nonce)
            for id_, each in sorted(self.sessions.items())
        )

    def copy(self) -> SessionTable:
        return self.at(self.applied, self.at_rest(), self.limits)

    def opened_with(self, nonce: int) -> int | None:
        """The session that was registered with this nonce, if it is still known."""
        return next((id_ for id_, each in self.sessions.items() if each.nonce == nonce), None)

    def fold(self, headers: Iterable[Header]) -> None:
        """Apply the next headers; stops before a stretch that cannot be read, and inside of one.

        Behind a marker of entries whose headers are lost no session goes on: nobody knows whose
        requests they were, but for a replica that has the entries after all.  So a leader that
        leads with such a loss starts the table over for all.
        """
        sessions, most = self.sessions, self.limits.replies_max
        for header in headers:
            kind, base = header.kind, header.base
            if base != self.applied:
                return  # a stretch that cannot be read begins before what is to be applied next
            if kind is _DATA or (kind is Kind.LOST and header.request):
                known = sessions.get(header.session)
                if known is not None:
                    known.last, known.used = header.request, base
                    known.replies.append(base)
                    if len(known.replies) > most:
                        del known.replies[:-most]
            elif kind is Kind.REGISTER:
                self._register(header)
            elif kind is Kind.EPOCH_START and header.request:
                sessions.clear()
                self.limits = SessionLimits(header.session, header.request, base)
                most = self.limits.replies_max
            elif kind is Kind.LOST:
                sessions.clear()
            elif kind is Kind.UNKNOWN:
                return
            self.applied = base + header.count

    def to_evict(self) -> int | None:
        """The session that makes room for the next one: the least recently used (T7)."""
        sessions = self.sessions
        if len(sessions) < self.limits.sessions_max:
            return None
        return min(sessions, key=lambda id_: sessions[id_].used)

    def _register(self, header: Header) -> None:
        sessions, evicted = self.sessions, self.to_evict()
        if evicted is not None:
            del sessions[evicted]
        sessions[session_of(header)] = OpenSession(0, (), header.base, header.request)


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
