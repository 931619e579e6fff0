"""What the superblock keeps, and its bytes.

The protocol's promises, and beside them what the storage engine itself must find again: whose files
these are, where the log begins, a cut that is under way, and the control records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from shardlog.protocol.effects import Superblock
from shardlog.protocol.entry import Member
from shardlog.protocol.history import History, Span
from shardlog.protocol.messages import Membership, Snapshot
from shardlog.protocol.sessions import UNNAMED_LIMITS, Session, SessionLimits, Sessions
from shardlog.storage.layout import RecordType
from shardlog.storage.movement import Record, Records

_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Root:
    """`cut_to` is where the log is being truncated: the cut is finished before anything else.

    `lineage` rises whenever the log is started over; segments of an older one are left-overs.
    `first` and `boundary` are where the log begins: below it everything was trimmed.
    `segments` were made in this lineage: if the last of them is not there, it was lost.
    """

    shard: str
    node: str
    lineage: int
    first: int
    boundary: int
    cut_to: int | None
    segments: int
    superblock: Superblock
    records: Records


class Malformed(Exception):  # noqa: N818 - named after what it is
    """Bytes with a right checksum that are no root: written by somebody else."""


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def number(self, *values: int) -> None:
        self.parts.extend(_U64.pack(value) for value in values)

    def text(self, value: str) -> None:
        data = value.encode()
        self.number(len(data))
        self.parts.append(data)

    def history(self, history: History) -> None:
        self.number(len(history))
        for span in history:
            self.number(span.epoch, span.first)

    def sessions(self, sessions: Sessions) -> None:
        self.number(len(sessions))
        for session in sessions:
            self.number(session.id, session.last, session.used, len(session.replies))
            self.number(*session.replies)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        try:
            (value,) = _U64.unpack_from(self.data, self.at)
        except struct.error as error:
            raise Malformed("it ends too early") from error
        self.at += 8
        return int(value)

    def text(self) -> str:
        length = self.number()
        data = self.data[self.at : self.at + length]
        if len(data) < length:
            raise Malformed("it ends too early")
        self.at += length
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Malformed("a name that is not text") from error

    def history(self) -> History:
        return tuple(Span(self.number(), self.number()) for _ in range(self.number()))

    def elections(self, history: History) -> History:
        """The history with the elections that stand here, one for each span."""
        if self.number() != len(history):
            raise Malformed("not one election for each span of a history")
        return tuple(span._replace(election=self.number()) for span in history)

    def sessions(self) -> Sessions:
        return tuple(self._session() for _ in range(self.number()))

    def table(self, sessions: Sessions) -> tuple[SessionLimits, Sessions]:
        """The sessions with the limits of their table, and the nonces, that stand here."""
        limits = SessionLimits(self.number(), self.number(), self.number())
        if self.number() != len(sessions):
            raise Malformed("not one nonce for each session of a table")
        return limits, tuple(session._replace(nonce=self.number()) for session in sessions)

    def _session(self) -> Session:
        name, last, used, replies = (self.number() for _ in range(4))
        return Session(name, last, tuple(self.number() for _ in range(replies)), used)


def pack_root(root: Root) -> bytes:
    to = _Writer()
    to.text(root.shard)
    to.text(root.node)
    to.number(root.lineage, root.first, root.boundary)
    to.number(0 if root.cut_to is None else root.cut_to + 1)
    to.number(root.segments)
    block = root.superblock
    to.number(block.incarnation, block.epoch, block.led, block.commit, block.in_doubt)
    to.history(block.history)
    to.number(block.sessions_at)
    to.sessions(block.sessions)
    _pack_syncing(to, block.syncing)
    to.number(len(root.records))
    for record in root.records:
        to.number(record.sequence, record.type, record.number, record.epoch, record.offset)
    tables = _has_tables(block)
    _pack_elections(to, block, tables)
    if tables:
        _pack_tables(to, block)
    return b"".join(to.parts)


def _pack_elections(to: _Writer, block: Superblock, needed: bool) -> None:
    """What is known of elections; a root without it was written by an older Shardlog."""
    known = block.membership
    histories = _histories(block)
    named = any(span.election for history in histories for span in history)
    if not block.election and known is None and not named and not needed:
        return
    to.number(block.election)
    for history in histories:
        to.number(len(history), *(span.election for span in history))
    to.number(0 if known is None else 1)
    if known is not None:
        to.number(known.epoch, known.election, len(known.ensemble))
        for member in known.ensemble:
            to.text(member.node)
            to.number(member.incarnation)


def _tables(block: Superblock) -> tuple[tuple[SessionLimits, Sessions], ...]:
    """The table of sessions, and that of the snapshot that is being installed."""
    begun = block.syncing
    theirs = (UNNAMED_LIMITS, ()) if begun is None else (begun.session_limits, begun.sessions)
    return (block.session_limits, block.sessions), theirs


def _has_tables(block: Superblock) -> bool:
    """Whether there is anything that a root of an older Shardlog could not say."""
    return any(
        limits != UNNAMED_LIMITS or any(session.nonce for session in sessions)
        for limits, sessions in _tables(block)
    )


def _pack_tables(to: _Writer, block: Superblock) -> None:
    for limits, sessions in _tables(block):
        to.number(*limits, len(sessions), *(session.nonce for session in sessions))


def _histories(block: Superblock) -> tuple[History, History]:
    return block.history, () if block.syncing is None else block.syncing.history


def _pack_syncing(to: _Writer, snapshot: Snapshot | None) -> None:
    to.number(0 if snapshot is None else 1)
    if snapshot is None:
        return
    to.text(snapshot.source.node)
    to.number(snapshot.source.incarnation)
    to.history(snapshot.history)
    to.number(snapshot.first, snapshot.boundary, snapshot.end, snapshot.head)
    to.sessions(snapshot.sessions)


def unpack_root(data: bytes) -> Root:
    """Raises `Malformed` for bytes that are no root."""
    of = _Reader(data)
    shard, node = of.text(), of.text()
    lineage, first, boundary, cut_to, segments = (of.number() for _ in range(5))
    incarnation, epoch, led, commit, in_doubt = (of.number() for _ in range(5))
    history = of.history()
    sessions_at = of.number()
    sessions = of.sessions()
    syncing = _unpack_syncing(of)
    records = tuple(_unpack_record(of) for _ in range(of.number()))
    election, membership = 0, None
    if of.at < len(data):
        election = of.number()
        history = of.elections(history)
        begun = of.elections(syncing.history if syncing else ())
        if syncing is not None:
            syncing = replace(syncing, history=begun)
        membership = _unpack_membership(of)
    limits = UNNAMED_LIMITS
    if of.at < len(data):
        limits, sessions = of.table(sessions)
        begun_limits, begun_sessions = of.table(syncing.sessions if syncing else ())
        if syncing is not None:
            syncing = replace(syncing, sessions=begun_sessions, session_limits=begun_limits)
    if of.at != len(data):
        raise Malformed("it goes on behind its end")
    return Root(
        shard,
        node,
        lineage,
        first,
        boundary,
        cut_to - 1 if cut_to else None,
        segments,
        Superblock(
            incarnation,
            epoch,
            led,
            history,
            commit,
            sessions_at,
            sessions,
            syncing,
            in_doubt,
            election,
            membership,
            limits,
        ),
        records,
    )


def _unpack_membership(of: _Reader) -> Membership | None:
    if not of.number():
        return None
    epoch, election, size = of.number(), of.number(), of.number()
    return Membership(epoch, election, tuple(Member(of.text(), of.number()) for _ in range(size)))


def _unpack_syncing(of: _Reader) -> Snapshot | None:
    if not of.number():
        return None
    source = Member(of.text(), of.number())
    history = of.history()
    first, boundary, end, head = (of.number() for _ in range(4))
    return Snapshot(source, history, first, boundary, end, head, of.sessions())


def _unpack_record(of: _Reader) -> Record:
    sequence, kind, number, epoch, offset = (of.number() for _ in range(5))
    try:
        return Record(sequence, RecordType(kind), number, epoch, offset)
    except ValueError:
        raise Malformed(f"unknown record type {kind}") from None
