from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Record(_message.Message):
    __slots__ = ("key", "value", "timestamp_ms", "headers", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    timestamp_ms: int
    headers: _containers.RepeatedCompositeFieldContainer[RecordHeader]
    offset: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., timestamp_ms: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[RecordHeader, _Mapping]]] = ..., offset: _Optional[int] = ...) -> None: ...

class RecordHeader(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class EncodedBatch(_message.Message):
    __slots__ = ("count", "crc32c", "body")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    count: int
    crc32c: int
    body: bytes
    def __init__(self, count: _Optional[int] = ..., crc32c: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("version", "shard", "session", "request", "records", "batch", "opening")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    version: int
    shard: str
    session: int
    request: int
    records: Records
    batch: EncodedBatch
    opening: int
    def __init__(self, version: _Optional[int] = ..., shard: _Optional[str] = ..., session: _Optional[int] = ..., request: _Optional[int] = ..., records: _Optional[_Union[Records, _Mapping]] = ..., batch: _Optional[_Union[EncodedBatch, _Mapping]] = ..., opening: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("version", "session", "request", "base_offset", "failure")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    version: int
    session: int
    request: int
    base_offset: int
    failure: Failure
    def __init__(self, version: _Optional[int] = ..., session: _Optional[int] = ..., request: _Optional[int] = ..., base_offset: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("version", "shard", "offset", "timestamp_ms", "end_offset", "follow", "encoded")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    version: int
    shard: str
    offset: int
    timestamp_ms: int
    end_offset: int
    follow: bool
    encoded: bool
    def __init__(self, version: _Optional[int] = ..., shard: _Optional[str] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., end_offset: _Optional[int] = ..., follow: _Optional[bool] = ..., encoded: _Optional[bool] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("version", "base_offset", "epoch", "commit_offset", "timestamp_ms", "records", "batch", "failure")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    version: int
    base_offset: int
    epoch: int
    commit_offset: int
    timestamp_ms: int
    records: Records
    batch: EncodedBatch
    failure: Failure
    def __init__(self, version: _Optional[int] = ..., base_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., commit_offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., records: _Optional[_Union[Records, _Mapping]] = ..., batch: _Optional[_Union[EncodedBatch, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "retriable", "leader", "first_offset", "expected_request", "leader_node", "next_offset")
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CODE_UNSPECIFIED: _ClassVar[Failure.Code]
        CODE_NOT_LEADER: _ClassVar[Failure.Code]
        CODE_TRY_AGAIN: _ClassVar[Failure.Code]
        CODE_SESSION_UNKNOWN: _ClassVar[Failure.Code]
        CODE_REQUEST_GAP: _ClassVar[Failure.Code]
        CODE_REPLY_FORGOTTEN: _ClassVar[Failure.Code]
        CODE_OFFSET_TRIMMED: _ClassVar[Failure.Code]
        CODE_INVALID: _ClassVar[Failure.Code]
        CODE_NO_SHARD: _ClassVar[Failure.Code]
        CODE_VERSION: _ClassVar[Failure.Code]
        CODE_ENTRY_LOST: _ClassVar[Failure.Code]
        CODE_DIFFERENT_REQUEST: _ClassVar[Failure.Code]
    CODE_UNSPECIFIED: Failure.Code
    CODE_NOT_LEADER: Failure.Code
    CODE_TRY_AGAIN: Failure.Code
    CODE_SESSION_UNKNOWN: Failure.Code
    CODE_REQUEST_GAP: Failure.Code
    CODE_REPLY_FORGOTTEN: Failure.Code
    CODE_OFFSET_TRIMMED: Failure.Code
    CODE_INVALID: Failure.Code
    CODE_NO_SHARD: Failure.Code
    CODE_VERSION: Failure.Code
    CODE_ENTRY_LOST: Failure.Code
    CODE_DIFFERENT_REQUEST: Failure.Code
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REQUEST_FIELD_NUMBER: _ClassVar[int]
    LEADER_NODE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    code: Failure.Code
    message: str
    retriable: bool
    leader: str
    first_offset: int
    expected_request: int
    leader_node: str
    next_offset: int
    def __init__(self, code: _Optional[_Union[Failure.Code, str]] = ..., message: _Optional[str] = ..., retriable: _Optional[bool] = ..., leader: _Optional[str] = ..., first_offset: _Optional[int] = ..., expected_request: _Optional[int] = ..., leader_node: _Optional[str] = ..., next_offset: _Optional[int] = ...) -> None: ...
