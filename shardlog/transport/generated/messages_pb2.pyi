from shardlog.transport.generated import refusals_pb2 as _refusals_pb2
from shardlog.transport.generated import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Message(_message.Message):
    __slots__ = ("create", "fence", "become_leader", "add_follower", "prepare", "commit", "abort", "snapshot_request", "install_snapshot", "pause_writes", "trim", "destroy", "status_request", "created", "fence_answer", "became_leader", "cannot_serve", "follower_added", "prepared", "committed", "aborted", "snapshot_offer", "snapshot_installed", "writes_paused", "destroyed", "status_report", "refused", "announce", "entries", "heartbeat", "ack", "progress", "fetch", "fetched", "register", "append", "read", "registered", "appended", "read_result", "client_refused")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    BECOME_LEADER_FIELD_NUMBER: _ClassVar[int]
    ADD_FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    INSTALL_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_WRITES_FIELD_NUMBER: _ClassVar[int]
    TRIM_FIELD_NUMBER: _ClassVar[int]
    DESTROY_FIELD_NUMBER: _ClassVar[int]
    STATUS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    FENCE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    BECAME_LEADER_FIELD_NUMBER: _ClassVar[int]
    CANNOT_SERVE_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_ADDED_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_OFFER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_INSTALLED_FIELD_NUMBER: _ClassVar[int]
    WRITES_PAUSED_FIELD_NUMBER: _ClassVar[int]
    DESTROYED_FIELD_NUMBER: _ClassVar[int]
    STATUS_REPORT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    READ_RESULT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_REFUSED_FIELD_NUMBER: _ClassVar[int]
    create: Create
    fence: Fence
    become_leader: BecomeLeader
    add_follower: AddFollower
    prepare: Prepare
    commit: Commit
    abort: Abort
    snapshot_request: SnapshotRequest
    install_snapshot: InstallSnapshot
    pause_writes: PauseWrites
    trim: Trim
    destroy: Destroy
    status_request: StatusRequest
    created: Created
    fence_answer: FenceAnswer
    became_leader: BecameLeader
    cannot_serve: CannotServe
    follower_added: FollowerAdded
    prepared: Prepared
    committed: Committed
    aborted: Aborted
    snapshot_offer: SnapshotOffer
    snapshot_installed: SnapshotInstalled
    writes_paused: WritesPaused
    destroyed: Destroyed
    status_report: StatusReport
    refused: Refused
    announce: Announce
    entries: Entries
    heartbeat: Heartbeat
    ack: Ack
    progress: Progress
    fetch: Fetch
    fetched: Fetched
    register: Register
    append: Append
    read: Read
    registered: Registered
    appended: Appended
    read_result: ReadResult
    client_refused: ClientRefused
    def __init__(self, create: _Optional[_Union[Create, _Mapping]] = ..., fence: _Optional[_Union[Fence, _Mapping]] = ..., become_leader: _Optional[_Union[BecomeLeader, _Mapping]] = ..., add_follower: _Optional[_Union[AddFollower, _Mapping]] = ..., prepare: _Optional[_Union[Prepare, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., snapshot_request: _Optional[_Union[SnapshotRequest, _Mapping]] = ..., install_snapshot: _Optional[_Union[InstallSnapshot, _Mapping]] = ..., pause_writes: _Optional[_Union[PauseWrites, _Mapping]] = ..., trim: _Optional[_Union[Trim, _Mapping]] = ..., destroy: _Optional[_Union[Destroy, _Mapping]] = ..., status_request: _Optional[_Union[StatusRequest, _Mapping]] = ..., created: _Optional[_Union[Created, _Mapping]] = ..., fence_answer: _Optional[_Union[FenceAnswer, _Mapping]] = ..., became_leader: _Optional[_Union[BecameLeader, _Mapping]] = ..., cannot_serve: _Optional[_Union[CannotServe, _Mapping]] = ..., follower_added: _Optional[_Union[FollowerAdded, _Mapping]] = ..., prepared: _Optional[_Union[Prepared, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., aborted: _Optional[_Union[Aborted, _Mapping]] = ..., snapshot_offer: _Optional[_Union[SnapshotOffer, _Mapping]] = ..., snapshot_installed: _Optional[_Union[SnapshotInstalled, _Mapping]] = ..., writes_paused: _Optional[_Union[WritesPaused, _Mapping]] = ..., destroyed: _Optional[_Union[Destroyed, _Mapping]] = ..., status_report: _Optional[_Union[StatusReport, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., announce: _Optional[_Union[Announce, _Mapping]] = ..., entries: _Optional[_Union[Entries, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., fetched: _Optional[_Union[Fetched, _Mapping]] = ..., register: _Optional[_Union[Register, _Mapping]] = ..., append: _Optional[_Union[Append, _Mapping]] = ..., read: _Optional[_Union[Read, _Mapping]] = ..., registered: _Optional[_Union[Registered, _Mapping]] = ..., appended: _Optional[_Union[Appended, _Mapping]] = ..., read_result: _Optional[_Union[ReadResult, _Mapping]] = ..., client_refused: _Optional[_Union[ClientRefused, _Mapping]] = ...) -> None: ...

class Create(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Fence(_message.Message):
    __slots__ = ("epoch", "election")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    election: int
    def __init__(self, epoch: _Optional[int] = ..., election: _Optional[int] = ...) -> None: ...

class BecomeLeader(_message.Message):
    __slots__ = ("epoch", "ensemble", "quorum", "kept", "sources", "followers", "losses", "election", "found")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    ensemble: _containers.RepeatedCompositeFieldContainer[_types_pb2.Member]
    quorum: _types_pb2.QuorumPolicy
    kept: _types_pb2.Kept
    sources: _containers.RepeatedCompositeFieldContainer[_types_pb2.Member]
    followers: _containers.RepeatedCompositeFieldContainer[FenceAnswer]
    losses: _containers.RepeatedCompositeFieldContainer[_types_pb2.Header]
    election: int
    found: _containers.RepeatedCompositeFieldContainer[_types_pb2.EntryId]
    def __init__(self, epoch: _Optional[int] = ..., ensemble: _Optional[_Iterable[_Union[_types_pb2.Member, _Mapping]]] = ..., quorum: _Optional[_Union[_types_pb2.QuorumPolicy, _Mapping]] = ..., kept: _Optional[_Union[_types_pb2.Kept, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[_types_pb2.Member, _Mapping]]] = ..., followers: _Optional[_Iterable[_Union[FenceAnswer, _Mapping]]] = ..., losses: _Optional[_Iterable[_Union[_types_pb2.Header, _Mapping]]] = ..., election: _Optional[int] = ..., found: _Optional[_Iterable[_Union[_types_pb2.EntryId, _Mapping]]] = ...) -> None: ...

class AddFollower(_message.Message):
    __slots__ = ("epoch", "answer", "standby")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    answer: FenceAnswer
    standby: bool
    def __init__(self, epoch: _Optional[int] = ..., answer: _Optional[_Union[FenceAnswer, _Mapping]] = ..., standby: _Optional[bool] = ...) -> None: ...

class Prepare(_message.Message):
    __slots__ = ("epoch", "change")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    change: _types_pb2.Reconfiguration
    def __init__(self, epoch: _Optional[int] = ..., change: _Optional[_Union[_types_pb2.Reconfiguration, _Mapping]] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("epoch", "change")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    change: _types_pb2.Reconfiguration
    def __init__(self, epoch: _Optional[int] = ..., change: _Optional[_Union[_types_pb2.Reconfiguration, _Mapping]] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("epoch", "ensemble")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    ensemble: _containers.RepeatedCompositeFieldContainer[_types_pb2.Member]
    def __init__(self, epoch: _Optional[int] = ..., ensemble: _Optional[_Iterable[_Union[_types_pb2.Member, _Mapping]]] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class InstallSnapshot(_message.Message):
    __slots__ = ("epoch", "snapshot", "others")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    snapshot: _types_pb2.Snapshot
    others: _containers.RepeatedCompositeFieldContainer[_types_pb2.Member]
    def __init__(self, epoch: _Optional[int] = ..., snapshot: _Optional[_Union[_types_pb2.Snapshot, _Mapping]] = ..., others: _Optional[_Iterable[_Union[_types_pb2.Member, _Mapping]]] = ...) -> None: ...

class PauseWrites(_message.Message):
    __slots__ = ("epoch", "target")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    target: _types_pb2.Member
    def __init__(self, epoch: _Optional[int] = ..., target: _Optional[_Union[_types_pb2.Member, _Mapping]] = ...) -> None: ...

class Trim(_message.Message):
    __slots__ = ("epoch", "first")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first: int
    def __init__(self, epoch: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class Destroy(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("epoch", "upkeep")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UPKEEP_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    upkeep: _types_pb2.Upkeep
    def __init__(self, epoch: _Optional[int] = ..., upkeep: _Optional[_Union[_types_pb2.Upkeep, _Mapping]] = ...) -> None: ...

class Created(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class FenceAnswer(_message.Message):
    __slots__ = ("member", "epoch", "history", "first", "commit", "end", "head", "open_tail", "syncing", "slots", "tail_slots", "damaged", "election", "membership")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    OPEN_TAIL_FIELD_NUMBER: _ClassVar[int]
    SYNCING_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TAIL_SLOTS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    member: _types_pb2.Member
    epoch: int
    history: _containers.RepeatedCompositeFieldContainer[_types_pb2.Span]
    first: int
    commit: int
    end: int
    head: int
    open_tail: bool
    syncing: bool
    slots: _containers.RepeatedCompositeFieldContainer[_types_pb2.Slot]
    tail_slots: int
    damaged: _containers.RepeatedCompositeFieldContainer[_types_pb2.Header]
    election: int
    membership: _types_pb2.Membership
    def __init__(self, member: _Optional[_Union[_types_pb2.Member, _Mapping]] = ..., epoch: _Optional[int] = ..., history: _Optional[_Iterable[_Union[_types_pb2.Span, _Mapping]]] = ..., first: _Optional[int] = ..., commit: _Optional[int] = ..., end: _Optional[int] = ..., head: _Optional[int] = ..., open_tail: _Optional[bool] = ..., syncing: _Optional[bool] = ..., slots: _Optional[_Iterable[_Union[_types_pb2.Slot, _Mapping]]] = ..., tail_slots: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[_types_pb2.Header, _Mapping]]] = ..., election: _Optional[int] = ..., membership: _Optional[_Union[_types_pb2.Membership, _Mapping]] = ...) -> None: ...

class BecameLeader(_message.Message):
    __slots__ = ("epoch", "needless")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEEDLESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    needless: _containers.RepeatedCompositeFieldContainer[_types_pb2.EntryId]
    def __init__(self, epoch: _Optional[int] = ..., needless: _Optional[_Iterable[_Union[_types_pb2.EntryId, _Mapping]]] = ...) -> None: ...

class CannotServe(_message.Message):
    __slots__ = ("epoch", "awaited")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    awaited: int
    def __init__(self, epoch: _Optional[int] = ..., awaited: _Optional[int] = ...) -> None: ...

class FollowerAdded(_message.Message):
    __slots__ = ("epoch", "member")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    member: _types_pb2.Member
    def __init__(self, epoch: _Optional[int] = ..., member: _Optional[_Union[_types_pb2.Member, _Mapping]] = ...) -> None: ...

class Prepared(_message.Message):
    __slots__ = ("epoch", "covered")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    covered: bool
    def __init__(self, epoch: _Optional[int] = ..., covered: _Optional[bool] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Aborted(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class SnapshotOffer(_message.Message):
    __slots__ = ("epoch", "snapshot")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    snapshot: _types_pb2.Snapshot
    def __init__(self, epoch: _Optional[int] = ..., snapshot: _Optional[_Union[_types_pb2.Snapshot, _Mapping]] = ...) -> None: ...

class SnapshotInstalled(_message.Message):
    __slots__ = ("epoch", "end")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    end: int
    def __init__(self, epoch: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class WritesPaused(_message.Message):
    __slots__ = ("epoch", "target", "caught_up")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    target: _types_pb2.Member
    caught_up: bool
    def __init__(self, epoch: _Optional[int] = ..., target: _Optional[_Union[_types_pb2.Member, _Mapping]] = ..., caught_up: _Optional[bool] = ...) -> None: ...

class Destroyed(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class StatusReport(_message.Message):
    __slots__ = ("asked", "member", "role", "epoch", "history", "end", "commit", "leader", "heard_ms_ago", "serving", "quorum_fresh", "ensemble", "cursors", "draining", "bad", "awaited", "repaired", "scrubbed", "scrub_rounds", "transfer", "slack_ms", "full", "election")
    ASKED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FRESH_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    SCRUBBED_FIELD_NUMBER: _ClassVar[int]
    SCRUB_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    SLACK_MS_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    asked: int
    member: _types_pb2.Member
    role: str
    epoch: int
    history: _containers.RepeatedCompositeFieldContainer[_types_pb2.Span]
    end: int
    commit: int
    leader: _types_pb2.Member
    heard_ms_ago: int
    serving: bool
    quorum_fresh: bool
    ensemble: _containers.RepeatedCompositeFieldContainer[_types_pb2.Member]
    cursors: _containers.RepeatedCompositeFieldContainer[_types_pb2.CursorStatus]
    draining: bool
    bad: int
    awaited: _types_pb2.EntryId
    repaired: int
    scrubbed: int
    scrub_rounds: int
    transfer: _types_pb2.Transfer
    slack_ms: int
    full: bool
    election: int
    def __init__(self, asked: _Optional[int] = ..., member: _Optional[_Union[_types_pb2.Member, _Mapping]] = ..., role: _Optional[str] = ..., epoch: _Optional[int] = ..., history: _Optional[_Iterable[_Union[_types_pb2.Span, _Mapping]]] = ..., end: _Optional[int] = ..., commit: _Optional[int] = ..., leader: _Optional[_Union[_types_pb2.Member, _Mapping]] = ..., heard_ms_ago: _Optional[int] = ..., serving: _Optional[bool] = ..., quorum_fresh: _Optional[bool] = ..., ensemble: _Optional[_Iterable[_Union[_types_pb2.Member, _Mapping]]] = ..., cursors: _Optional[_Iterable[_Union[_types_pb2.CursorStatus, _Mapping]]] = ..., draining: _Optional[bool] = ..., bad: _Optional[int] = ..., awaited: _Optional[_Union[_types_pb2.EntryId, _Mapping]] = ..., repaired: _Optional[int] = ..., scrubbed: _Optional[int] = ..., scrub_rounds: _Optional[int] = ..., transfer: _Optional[_Union[_types_pb2.Transfer, _Mapping]] = ..., slack_ms: _Optional[int] = ..., full: _Optional[bool] = ..., election: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("request", "epoch", "refusal")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    request: str
    epoch: int
    refusal: _refusals_pb2.Refusal
    def __init__(self, request: _Optional[str] = ..., epoch: _Optional[int] = ..., refusal: _Optional[_Union[_refusals_pb2.Refusal, _Mapping]] = ...) -> None: ...

class Announce(_message.Message):
    __slots__ = ("epoch", "history", "end", "cut", "commit", "standby", "snapshot", "election", "members")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    history: _containers.RepeatedCompositeFieldContainer[_types_pb2.Span]
    end: int
    cut: int
    commit: int
    standby: bool
    snapshot: _types_pb2.Snapshot
    election: int
    members: _containers.RepeatedCompositeFieldContainer[_types_pb2.Member]
    def __init__(self, epoch: _Optional[int] = ..., history: _Optional[_Iterable[_Union[_types_pb2.Span, _Mapping]]] = ..., end: _Optional[int] = ..., cut: _Optional[int] = ..., commit: _Optional[int] = ..., standby: _Optional[bool] = ..., snapshot: _Optional[_Union[_types_pb2.Snapshot, _Mapping]] = ..., election: _Optional[int] = ..., members: _Optional[_Iterable[_Union[_types_pb2.Member, _Mapping]]] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("epoch", "entries", "commit", "first")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    entries: _containers.RepeatedCompositeFieldContainer[_types_pb2.Entry]
    commit: int
    first: int
    def __init__(self, epoch: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[_types_pb2.Entry, _Mapping]]] = ..., commit: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("epoch", "commit", "first", "beat", "quorum_fresh")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FRESH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    commit: int
    first: int
    beat: int
    quorum_fresh: bool
    def __init__(self, epoch: _Optional[int] = ..., commit: _Optional[int] = ..., first: _Optional[int] = ..., beat: _Optional[int] = ..., quorum_fresh: _Optional[bool] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("epoch", "end", "at", "beat")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    end: int
    at: int
    beat: int
    def __init__(self, epoch: _Optional[int] = ..., end: _Optional[int] = ..., at: _Optional[int] = ..., beat: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("epoch", "at")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    at: int
    def __init__(self, epoch: _Optional[int] = ..., at: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("epoch", "history", "start", "end")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    history: _containers.RepeatedCompositeFieldContainer[_types_pb2.Span]
    start: int
    end: int
    def __init__(self, epoch: _Optional[int] = ..., history: _Optional[_Iterable[_Union[_types_pb2.Span, _Mapping]]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Fetched(_message.Message):
    __slots__ = ("epoch", "entries", "more")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    entries: _containers.RepeatedCompositeFieldContainer[_types_pb2.Entry]
    more: int
    def __init__(self, epoch: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[_types_pb2.Entry, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("session", "request", "count", "body", "body_checksum")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    session: int
    request: int
    count: int
    body: bytes
    body_checksum: int
    def __init__(self, session: _Optional[int] = ..., request: _Optional[int] = ..., count: _Optional[int] = ..., body: _Optional[bytes] = ..., body_checksum: _Optional[int] = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ("nonce", "start", "entries_max")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_MAX_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    start: int
    entries_max: int
    def __init__(self, nonce: _Optional[int] = ..., start: _Optional[int] = ..., entries_max: _Optional[int] = ...) -> None: ...

class Registered(_message.Message):
    __slots__ = ("nonce", "session")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    session: int
    def __init__(self, nonce: _Optional[int] = ..., session: _Optional[int] = ...) -> None: ...

class Appended(_message.Message):
    __slots__ = ("session", "request", "base")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    session: int
    request: int
    base: int
    def __init__(self, session: _Optional[int] = ..., request: _Optional[int] = ..., base: _Optional[int] = ...) -> None: ...

class ReadResult(_message.Message):
    __slots__ = ("nonce", "entries", "commit")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    entries: _containers.RepeatedCompositeFieldContainer[_types_pb2.Entry]
    commit: int
    def __init__(self, nonce: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[_types_pb2.Entry, _Mapping]]] = ..., commit: _Optional[int] = ...) -> None: ...

class ClientRefused(_message.Message):
    __slots__ = ("session", "nonce", "refusal")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    session: int
    nonce: int
    refusal: _refusals_pb2.Refusal
    def __init__(self, session: _Optional[int] = ..., nonce: _Optional[int] = ..., refusal: _Optional[_Union[_refusals_pb2.Refusal, _Mapping]] = ...) -> None: ...
