from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_DATA: _ClassVar[Kind]
    KIND_EPOCH_START: _ClassVar[Kind]
    KIND_REGISTER: _ClassVar[Kind]
    KIND_UNKNOWN: _ClassVar[Kind]
    KIND_LOST: _ClassVar[Kind]

class Mark(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MARK_UNSPECIFIED: _ClassVar[Mark]
    MARK_PRESENT: _ClassVar[Mark]
    MARK_MISSING: _ClassVar[Mark]
    MARK_CORRUPT: _ClassVar[Mark]
    MARK_BLANK: _ClassVar[Mark]
    MARK_FAULT: _ClassVar[Mark]

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[Operation]
    OPERATION_SWAP: _ClassVar[Operation]
    OPERATION_EXPAND: _ClassVar[Operation]
    OPERATION_CONTRACT: _ClassVar[Operation]
KIND_UNSPECIFIED: Kind
KIND_DATA: Kind
KIND_EPOCH_START: Kind
KIND_REGISTER: Kind
KIND_UNKNOWN: Kind
KIND_LOST: Kind
MARK_UNSPECIFIED: Mark
MARK_PRESENT: Mark
MARK_MISSING: Mark
MARK_CORRUPT: Mark
MARK_BLANK: Mark
MARK_FAULT: Mark
OPERATION_UNSPECIFIED: Operation
OPERATION_SWAP: Operation
OPERATION_EXPAND: Operation
OPERATION_CONTRACT: Operation

class Member(_message.Message):
    __slots__ = ("node", "incarnation")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    node: str
    incarnation: int
    def __init__(self, node: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class EntryId(_message.Message):
    __slots__ = ("epoch", "offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    offset: int
    def __init__(self, epoch: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("epoch", "first", "election")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first: int
    election: int
    def __init__(self, epoch: _Optional[int] = ..., first: _Optional[int] = ..., election: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("epoch", "base", "count", "kind", "session", "request", "timestamp_ms", "parent", "body_checksum", "checksum")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    BODY_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    base: int
    count: int
    kind: Kind
    session: int
    request: int
    timestamp_ms: int
    parent: int
    body_checksum: int
    checksum: int
    def __init__(self, epoch: _Optional[int] = ..., base: _Optional[int] = ..., count: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., session: _Optional[int] = ..., request: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., parent: _Optional[int] = ..., body_checksum: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("header", "body")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    header: Header
    body: bytes
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., body: _Optional[bytes] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("id", "last", "replies", "used", "nonce")
    ID_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    id: int
    last: int
    replies: _containers.RepeatedScalarFieldContainer[int]
    used: int
    nonce: int
    def __init__(self, id: _Optional[int] = ..., last: _Optional[int] = ..., replies: _Optional[_Iterable[int]] = ..., used: _Optional[int] = ..., nonce: _Optional[int] = ...) -> None: ...

class SessionLimits(_message.Message):
    __slots__ = ("sessions_max", "replies_max", "since")
    SESSIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    REPLIES_MAX_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    sessions_max: int
    replies_max: int
    since: int
    def __init__(self, sessions_max: _Optional[int] = ..., replies_max: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class QuorumPolicy(_message.Message):
    __slots__ = ("replication", "fencing")
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    FENCING_FIELD_NUMBER: _ClassVar[int]
    replication: int
    fencing: int
    def __init__(self, replication: _Optional[int] = ..., fencing: _Optional[int] = ...) -> None: ...

class Upkeep(_message.Message):
    __slots__ = ("version", "retention_bytes", "retention_ms", "relaxed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RELAXED_FIELD_NUMBER: _ClassVar[int]
    version: int
    retention_bytes: int
    retention_ms: int
    relaxed: bool
    def __init__(self, version: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retention_ms: _Optional[int] = ..., relaxed: _Optional[bool] = ...) -> None: ...

class Reconfiguration(_message.Message):
    __slots__ = ("operation", "before", "old", "new")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    operation: Operation
    before: _containers.RepeatedCompositeFieldContainer[Member]
    old: Member
    new: Member
    def __init__(self, operation: _Optional[_Union[Operation, str]] = ..., before: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., old: _Optional[_Union[Member, _Mapping]] = ..., new: _Optional[_Union[Member, _Mapping]] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("epoch", "base", "end", "checksum", "mark")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    base: int
    end: int
    checksum: int
    mark: Mark
    def __init__(self, epoch: _Optional[int] = ..., base: _Optional[int] = ..., end: _Optional[int] = ..., checksum: _Optional[int] = ..., mark: _Optional[_Union[Mark, str]] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("history", "end", "head")
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    history: _containers.RepeatedCompositeFieldContainer[Span]
    end: int
    head: int
    def __init__(self, history: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., end: _Optional[int] = ..., head: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("source", "history", "first", "boundary", "end", "head", "sessions", "session_limits")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_LIMITS_FIELD_NUMBER: _ClassVar[int]
    source: Member
    history: _containers.RepeatedCompositeFieldContainer[Span]
    first: int
    boundary: int
    end: int
    head: int
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    session_limits: SessionLimits
    def __init__(self, source: _Optional[_Union[Member, _Mapping]] = ..., history: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., first: _Optional[int] = ..., boundary: _Optional[int] = ..., end: _Optional[int] = ..., head: _Optional[int] = ..., sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., session_limits: _Optional[_Union[SessionLimits, _Mapping]] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ("epoch", "election", "ensemble")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    election: int
    ensemble: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, epoch: _Optional[int] = ..., election: _Optional[int] = ..., ensemble: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class CursorStatus(_message.Message):
    __slots__ = ("member", "acked", "standby", "lost", "heard_ms_ago", "sent_bytes")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    member: Member
    acked: int
    standby: bool
    lost: bool
    heard_ms_ago: int
    sent_bytes: int
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., acked: _Optional[int] = ..., standby: _Optional[bool] = ..., lost: _Optional[bool] = ..., heard_ms_ago: _Optional[int] = ..., sent_bytes: _Optional[int] = ...) -> None: ...

class Transfer(_message.Message):
    __slots__ = ("source", "first", "at", "end", "done_bytes", "bytes_per_s")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    DONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    source: Member
    first: int
    at: int
    end: int
    done_bytes: int
    bytes_per_s: int
    def __init__(self, source: _Optional[_Union[Member, _Mapping]] = ..., first: _Optional[int] = ..., at: _Optional[int] = ..., end: _Optional[int] = ..., done_bytes: _Optional[int] = ..., bytes_per_s: _Optional[int] = ...) -> None: ...
