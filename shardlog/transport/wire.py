"""Messages of the protocol as protobuf, and back.

The .proto files name every message and field just as the dataclasses do, so one codec serves all:
it is made once for each type from its annotations.  A dataclass without a counterpart, or a field
that is called otherwise, fails when this module is imported.

Decoding is strict where the protocol is: a part that must be there, an enum's value that is known,
exactly one message in an envelope.  Fields that a newer version added are passed over.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from shardlog.protocol import failures as refusals
from shardlog.protocol import messages
from shardlog.protocol.entry import Body
from shardlog.protocol.failures import Refusal
from shardlog.protocol.messages import Message
from shardlog.transport.failures import MalformedMessage
from shardlog.transport.generated import messages_pb2, refusals_pb2, types_pb2

PLAIN = (int, bool, str, bytes)


def concrete(module: types.ModuleType, base: type) -> list[type]:
    """The classes of a module that are a `base`, without `base` itself."""
    found = [each for each in vars(module).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, base) and each is not base]


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Part(typing.NamedTuple):
    """How a value becomes what a protobuf constructor takes, and back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class Record:
    """The codec of one dataclass or named tuple."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.protobuf: type[Any] = _counterpart(kind)
        hints = typing.get_type_hints(kind)
        names = kind.__match_args__  # type: ignore[attr-defined]
        self.fields = [_Field(kind, name, hints[name]) for name in names]
        described = self.protobuf.DESCRIPTOR.fields_by_name
        if set(names) != set(described):
            raise TypeError(f"{kind.__name__} has {names}, its .proto {list(described)}")

    def encode(self, value: Any) -> Any:
        made = {}
        for field in self.fields:
            part = field.encode(getattr(value, field.name))
            if part is not None:
                made[field.name] = part
        return self.protobuf(**made)

    def decode(self, found: Any) -> Any:
        return self.kind(*[field.decode(found) for field in self.fields])


class _Field:
    """One attribute: always there, or, if it is `optional`, perhaps."""

    __slots__ = ("_part", "must_be_present", "name", "optional", "owner", "repeated")

    def __init__(self, owner: type, name: str, hint: Any) -> None:
        self.owner = owner.__name__
        self.name = name
        self.optional = self.repeated = False
        if hint == Body:
            hint = bytes
        elif typing.get_origin(hint) in (types.UnionType, typing.Union):
            (hint,) = [each for each in typing.get_args(hint) if each is not type(None)]
            self.optional = True
        elif typing.get_origin(hint) is tuple:
            hint = typing.get_args(hint)[0]
            self.repeated = True
        self._part = _part_of(hint)
        self.must_be_present = hint not in PLAIN and not issubclass(hint, Enum)

    def encode(self, value: Any) -> Any:
        if value is None:
            return None
        if self.repeated:
            return [self._part.encode(each) for each in value]
        return self._part.encode(value)

    def decode(self, found: Protobuf) -> Any:
        value = getattr(found, self.name)
        if self.repeated:
            return tuple([self._part.decode(each) for each in value])
        if (self.optional or self.must_be_present) and not found.HasField(self.name):
            if self.optional:
                return None
            raise MalformedMessage(f"{self.owner} without {self.name}")
        return self._part.decode(value)


class OneOf:
    """The codec of an envelope that holds exactly one of several records."""

    def __init__(self, protobuf: type[Any], oneof: str, kinds: list[type]) -> None:
        self.protobuf = protobuf
        self.oneof = oneof
        self.by_type = {kind: (snake_case(kind.__name__), record_of(kind)) for kind in kinds}
        self.by_name = dict(self.by_type.values())
        described = [each.name for each in protobuf.DESCRIPTOR.oneofs_by_name[oneof].fields]
        if set(self.by_name) != set(described):
            raise TypeError(f"{protobuf.__name__} has {described}, not {list(self.by_name)}")

    def encode(self, value: Any) -> Any:
        name, record = self.by_type[type(value)]
        return self.protobuf(**{name: record.encode(value)})

    def decode(self, found: Any) -> Any:
        name = found.WhichOneof(self.oneof)
        if name is None:
            raise MalformedMessage(f"{self.protobuf.__name__} holds nothing that is known here")
        return self.by_name[name].decode(getattr(found, name))


_RECORDS: dict[type, Record] = {}


def record_of(kind: type) -> Record:
    if kind not in _RECORDS:
        _RECORDS[kind] = Record(kind)
    return _RECORDS[kind]


def _counterpart(kind: type) -> type[Any]:
    for module in (messages_pb2, refusals_pb2, types_pb2):
        found: type[Any] | None = getattr(module, kind.__name__, None)
        if found is not None:
            return found
    raise TypeError(f"no .proto describes {kind.__name__}")


def _part_of(hint: Any) -> Part:
    if hint is bytes:
        return Part(bytes, _same)  # it may be a view
    if hint in PLAIN:
        return Part(_same, _same)
    if issubclass(hint, Enum):
        return _enum_part(hint)
    if hint is Refusal:
        return Part(REFUSAL.encode, REFUSAL.decode)
    record = record_of(hint)
    return Part(record.encode, record.decode)


def _same(value: Any) -> Any:
    return value


def _enum_part(kind: type[Enum]) -> Part:
    numbers = getattr(types_pb2, kind.__name__)
    prefix = kind.__name__.upper()
    by_value = {each: numbers.Value(f"{prefix}_{each.name}") for each in kind}
    by_number = {number: each for each, number in by_value.items()}

    def decode(number: int) -> Enum:
        if number not in by_number:
            raise MalformedMessage(f"no {kind.__name__} has number {number}")
        return by_number[number]

    return Part(by_value.__getitem__, decode)


REFUSAL = OneOf(refusals_pb2.Refusal, "refusal", concrete(refusals, Refusal))
MESSAGE = OneOf(messages_pb2.Message, "message", concrete(messages, Message))


def parsed(protobuf: type[Any], data: bytes) -> Any:
    try:
        return protobuf.FromString(data)
    except DecodeError as failure:
        raise MalformedMessage(f"no {protobuf.__name__}: {failure}") from failure


def encode_message(message: Message) -> bytes:
    """Any message, as the payload of a frame MESSAGE."""
    data: bytes = MESSAGE.encode(message).SerializeToString()
    return data


def decode_message(data: bytes) -> Message:
    message: Message = MESSAGE.decode(parsed(messages_pb2.Message, data))
    return message


def encode_refusal(refusal: Refusal) -> bytes:
    data: bytes = REFUSAL.encode(refusal).SerializeToString()
    return data


def decode_refusal(data: bytes) -> Refusal:
    refusal: Refusal = REFUSAL.decode(parsed(refusals_pb2.Refusal, data))
    return refusal


def message_types() -> Iterator[type[Message]]:
    """Every message that can travel."""
    yield from MESSAGE.by_type
