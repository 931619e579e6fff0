from shardlog.transport.generated import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Route(_message.Message):
    __slots__ = ("version", "shard", "src", "src_incarnation", "dst", "dst_incarnation", "addresses")
    class AddressesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SRC_FIELD_NUMBER: _ClassVar[int]
    SRC_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    DST_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    version: int
    shard: str
    src: str
    src_incarnation: int
    dst: str
    dst_incarnation: int
    addresses: _containers.ScalarMap[str, str]
    def __init__(self, version: _Optional[int] = ..., shard: _Optional[str] = ..., src: _Optional[str] = ..., src_incarnation: _Optional[int] = ..., dst: _Optional[str] = ..., dst_incarnation: _Optional[int] = ..., addresses: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("route", "created", "fence_answer", "became_leader", "cannot_serve", "follower_added", "prepared", "committed", "aborted", "snapshot_offer", "snapshot_installed", "writes_paused", "destroyed", "status_report", "refused")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
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
    route: Route
    created: _messages_pb2.Created
    fence_answer: _messages_pb2.FenceAnswer
    became_leader: _messages_pb2.BecameLeader
    cannot_serve: _messages_pb2.CannotServe
    follower_added: _messages_pb2.FollowerAdded
    prepared: _messages_pb2.Prepared
    committed: _messages_pb2.Committed
    aborted: _messages_pb2.Aborted
    snapshot_offer: _messages_pb2.SnapshotOffer
    snapshot_installed: _messages_pb2.SnapshotInstalled
    writes_paused: _messages_pb2.WritesPaused
    destroyed: _messages_pb2.Destroyed
    status_report: _messages_pb2.StatusReport
    refused: _messages_pb2.Refused
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., created: _Optional[_Union[_messages_pb2.Created, _Mapping]] = ..., fence_answer: _Optional[_Union[_messages_pb2.FenceAnswer, _Mapping]] = ..., became_leader: _Optional[_Union[_messages_pb2.BecameLeader, _Mapping]] = ..., cannot_serve: _Optional[_Union[_messages_pb2.CannotServe, _Mapping]] = ..., follower_added: _Optional[_Union[_messages_pb2.FollowerAdded, _Mapping]] = ..., prepared: _Optional[_Union[_messages_pb2.Prepared, _Mapping]] = ..., committed: _Optional[_Union[_messages_pb2.Committed, _Mapping]] = ..., aborted: _Optional[_Union[_messages_pb2.Aborted, _Mapping]] = ..., snapshot_offer: _Optional[_Union[_messages_pb2.SnapshotOffer, _Mapping]] = ..., snapshot_installed: _Optional[_Union[_messages_pb2.SnapshotInstalled, _Mapping]] = ..., writes_paused: _Optional[_Union[_messages_pb2.WritesPaused, _Mapping]] = ..., destroyed: _Optional[_Union[_messages_pb2.Destroyed, _Mapping]] = ..., status_report: _Optional[_Union[_messages_pb2.StatusReport, _Mapping]] = ..., refused: _Optional[_Union[_messages_pb2.Refused, _Mapping]] = ...) -> None: ...

class CreateCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.Create
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Create, _Mapping]] = ...) -> None: ...

class FenceCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.Fence
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Fence, _Mapping]] = ...) -> None: ...

class BecomeLeaderCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.BecomeLeader
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.BecomeLeader, _Mapping]] = ...) -> None: ...

class AddFollowerCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.AddFollower
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.AddFollower, _Mapping]] = ...) -> None: ...

class PrepareReconfigCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.Prepare
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Prepare, _Mapping]] = ...) -> None: ...

class CommitReconfigCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.Commit
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Commit, _Mapping]] = ...) -> None: ...

class AbortReconfigCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.Abort
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Abort, _Mapping]] = ...) -> None: ...

class DescribeSnapshotCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.SnapshotRequest
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.SnapshotRequest, _Mapping]] = ...) -> None: ...

class InstallSnapshotCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.InstallSnapshot
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.InstallSnapshot, _Mapping]] = ...) -> None: ...

class PauseWritesCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.PauseWrites
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.PauseWrites, _Mapping]] = ...) -> None: ...

class TrimCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.Trim
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Trim, _Mapping]] = ...) -> None: ...

class DeleteShardCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.Destroy
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Destroy, _Mapping]] = ...) -> None: ...

class StatusCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.StatusRequest
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.StatusRequest, _Mapping]] = ...) -> None: ...

class StatusOfManyCall(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[StatusCall]
    def __init__(self, calls: _Optional[_Iterable[_Union[StatusCall, _Mapping]]] = ...) -> None: ...

class AnswersOfMany(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[Answer]
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, _Mapping]]] = ...) -> None: ...

class NewsCall(_message.Message):
    __slots__ = ("version", "node", "life", "since")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    node: str
    life: int
    since: int
    def __init__(self, version: _Optional[int] = ..., node: _Optional[str] = ..., life: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class NewsAnswer(_message.Message):
    __slots__ = ("version", "life", "number", "shards")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    life: int
    number: int
    shards: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., life: _Optional[int] = ..., number: _Optional[int] = ..., shards: _Optional[_Iterable[str]] = ...) -> None: ...

class FetchSnapshotCall(_message.Message):
    __slots__ = ("route", "message")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    message: _messages_pb2.Fetch
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Fetch, _Mapping]] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("position", "data", "checksum", "last")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    position: int
    data: bytes
    checksum: int
    last: bool
    def __init__(self, position: _Optional[int] = ..., data: _Optional[bytes] = ..., checksum: _Optional[int] = ..., last: _Optional[bool] = ...) -> None: ...
