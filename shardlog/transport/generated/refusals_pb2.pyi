from shardlog.transport.generated import types_pb2 as _types_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Refusal(_message.Message):
    __slots__ = ("no_replica", "wrong_shard", "stale_epoch", "wrong_role", "not_leader", "unknown_member", "offset_gap", "wrong_parent", "different_entry", "divergence_mismatch", "below_commit", "not_ready", "standby_lagging", "lost_disk", "illegal", "unsafe_quorum", "session_unknown", "request_gap", "reply_forgotten", "overloaded", "offset_trimmed", "corrupt_entry", "entry_lost", "other_election", "different_request")
    NO_REPLICA_FIELD_NUMBER: _ClassVar[int]
    WRONG_SHARD_FIELD_NUMBER: _ClassVar[int]
    STALE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WRONG_ROLE_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_MEMBER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_GAP_FIELD_NUMBER: _ClassVar[int]
    WRONG_PARENT_FIELD_NUMBER: _ClassVar[int]
    DIFFERENT_ENTRY_FIELD_NUMBER: _ClassVar[int]
    DIVERGENCE_MISMATCH_FIELD_NUMBER: _ClassVar[int]
    BELOW_COMMIT_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    STANDBY_LAGGING_FIELD_NUMBER: _ClassVar[int]
    LOST_DISK_FIELD_NUMBER: _ClassVar[int]
    ILLEGAL_FIELD_NUMBER: _ClassVar[int]
    UNSAFE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    SESSION_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_GAP_FIELD_NUMBER: _ClassVar[int]
    REPLY_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    OVERLOADED_FIELD_NUMBER: _ClassVar[int]
    OFFSET_TRIMMED_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_ENTRY_FIELD_NUMBER: _ClassVar[int]
    ENTRY_LOST_FIELD_NUMBER: _ClassVar[int]
    OTHER_ELECTION_FIELD_NUMBER: _ClassVar[int]
    DIFFERENT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    no_replica: NoReplica
    wrong_shard: WrongShard
    stale_epoch: StaleEpoch
    wrong_role: WrongRole
    not_leader: NotLeader
    unknown_member: UnknownMember
    offset_gap: OffsetGap
    wrong_parent: WrongParent
    different_entry: DifferentEntry
    divergence_mismatch: DivergenceMismatch
    below_commit: BelowCommit
    not_ready: NotReady
    standby_lagging: StandbyLagging
    lost_disk: LostDisk
    illegal: Illegal
    unsafe_quorum: UnsafeQuorum
    session_unknown: SessionUnknown
    request_gap: RequestGap
    reply_forgotten: ReplyForgotten
    overloaded: Overloaded
    offset_trimmed: OffsetTrimmed
    corrupt_entry: CorruptEntry
    entry_lost: EntryLost
    other_election: OtherElection
    different_request: DifferentRequest
    def __init__(self, no_replica: _Optional[_Union[NoReplica, _Mapping]] = ..., wrong_shard: _Optional[_Union[WrongShard, _Mapping]] = ..., stale_epoch: _Optional[_Union[StaleEpoch, _Mapping]] = ..., wrong_role: _Optional[_Union[WrongRole, _Mapping]] = ..., not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., unknown_member: _Optional[_Union[UnknownMember, _Mapping]] = ..., offset_gap: _Optional[_Union[OffsetGap, _Mapping]] = ..., wrong_parent: _Optional[_Union[WrongParent, _Mapping]] = ..., different_entry: _Optional[_Union[DifferentEntry, _Mapping]] = ..., divergence_mismatch: _Optional[_Union[DivergenceMismatch, _Mapping]] = ..., below_commit: _Optional[_Union[BelowCommit, _Mapping]] = ..., not_ready: _Optional[_Union[NotReady, _Mapping]] = ..., standby_lagging: _Optional[_Union[StandbyLagging, _Mapping]] = ..., lost_disk: _Optional[_Union[LostDisk, _Mapping]] = ..., illegal: _Optional[_Union[Illegal, _Mapping]] = ..., unsafe_quorum: _Optional[_Union[UnsafeQuorum, _Mapping]] = ..., session_unknown: _Optional[_Union[SessionUnknown, _Mapping]] = ..., request_gap: _Optional[_Union[RequestGap, _Mapping]] = ..., reply_forgotten: _Optional[_Union[ReplyForgotten, _Mapping]] = ..., overloaded: _Optional[_Union[Overloaded, _Mapping]] = ..., offset_trimmed: _Optional[_Union[OffsetTrimmed, _Mapping]] = ..., corrupt_entry: _Optional[_Union[CorruptEntry, _Mapping]] = ..., entry_lost: _Optional[_Union[EntryLost, _Mapping]] = ..., other_election: _Optional[_Union[OtherElection, _Mapping]] = ..., different_request: _Optional[_Union[DifferentRequest, _Mapping]] = ...) -> None: ...

class NoReplica(_message.Message):
    __slots__ = ("incarnation", "asked")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    asked: int
    def __init__(self, incarnation: _Optional[int] = ..., asked: _Optional[int] = ...) -> None: ...

class WrongShard(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: str
    def __init__(self, shard: _Optional[str] = ...) -> None: ...

class StaleEpoch(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class WrongRole(_message.Message):
    __slots__ = ("role", "epoch")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    role: str
    epoch: int
    def __init__(self, role: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class OtherElection(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class NotLeader(_message.Message):
    __slots__ = ("hint",)
    HINT_FIELD_NUMBER: _ClassVar[int]
    hint: str
    def __init__(self, hint: _Optional[str] = ...) -> None: ...

class UnknownMember(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: _types_pb2.Member
    def __init__(self, member: _Optional[_Union[_types_pb2.Member, _Mapping]] = ...) -> None: ...

class OffsetGap(_message.Message):
    __slots__ = ("expected",)
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    expected: int
    def __init__(self, expected: _Optional[int] = ...) -> None: ...

class WrongParent(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: _types_pb2.EntryId
    def __init__(self, entry: _Optional[_Union[_types_pb2.EntryId, _Mapping]] = ...) -> None: ...

class DifferentEntry(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: _types_pb2.EntryId
    def __init__(self, entry: _Optional[_Union[_types_pb2.EntryId, _Mapping]] = ...) -> None: ...

class DivergenceMismatch(_message.Message):
    __slots__ = ("announced", "computed")
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    announced: int
    computed: int
    def __init__(self, announced: _Optional[int] = ..., computed: _Optional[int] = ...) -> None: ...

class BelowCommit(_message.Message):
    __slots__ = ("commit",)
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    commit: int
    def __init__(self, commit: _Optional[int] = ...) -> None: ...

class NotReady(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StandbyLagging(_message.Message):
    __slots__ = ("lag",)
    LAG_FIELD_NUMBER: _ClassVar[int]
    lag: int
    def __init__(self, lag: _Optional[int] = ...) -> None: ...

class LostDisk(_message.Message):
    __slots__ = ("member", "acked")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    member: _types_pb2.Member
    acked: int
    def __init__(self, member: _Optional[_Union[_types_pb2.Member, _Mapping]] = ..., acked: _Optional[int] = ...) -> None: ...

class Illegal(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class UnsafeQuorum(_message.Message):
    __slots__ = ("size", "replication", "fencing")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    FENCING_FIELD_NUMBER: _ClassVar[int]
    size: int
    replication: int
    fencing: int
    def __init__(self, size: _Optional[int] = ..., replication: _Optional[int] = ..., fencing: _Optional[int] = ...) -> None: ...

class SessionUnknown(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: int
    def __init__(self, session: _Optional[int] = ...) -> None: ...

class RequestGap(_message.Message):
    __slots__ = ("expected",)
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    expected: int
    def __init__(self, expected: _Optional[int] = ...) -> None: ...

class ReplyForgotten(_message.Message):
    __slots__ = ("oldest",)
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    oldest: int
    def __init__(self, oldest: _Optional[int] = ...) -> None: ...

class DifferentRequest(_message.Message):
    __slots__ = ("base",)
    BASE_FIELD_NUMBER: _ClassVar[int]
    base: int
    def __init__(self, base: _Optional[int] = ...) -> None: ...

class Overloaded(_message.Message):
    __slots__ = ("inflight",)
    INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    inflight: int
    def __init__(self, inflight: _Optional[int] = ...) -> None: ...

class OffsetTrimmed(_message.Message):
    __slots__ = ("first",)
    FIRST_FIELD_NUMBER: _ClassVar[int]
    first: int
    def __init__(self, first: _Optional[int] = ...) -> None: ...

class CorruptEntry(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: _types_pb2.EntryId
    def __init__(self, entry: _Optional[_Union[_types_pb2.EntryId, _Mapping]] = ...) -> None: ...

class EntryLost(_message.Message):
    __slots__ = ("first", "end")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    first: int
    end: int
    def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
