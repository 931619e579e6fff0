"""Random values of every type that travels, from the types' own annotations."""

import functools
import types
import typing
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from shardlog.protocol import failures, messages
from shardlog.protocol.entry import Body, Entry, Header, Kind
from shardlog.protocol.failures import Refusal
from shardlog.protocol.messages import Message

U64 = st.integers(0, (1 << 64) - 1)
U32 = st.integers(0, (1 << 32) - 1)
TEXT = st.text("aZ0-. \n\0äß界🦀", max_size=20)


def named(module: types.ModuleType, base: type) -> list[type]:
    found = [each for each in vars(module).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, base) and each is not base]


MESSAGES = named(messages, Message)
REFUSALS = named(failures, Refusal)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """As a node makes them: the body's checksum holds its length in the upper half."""
    body = draw(st.binary(max_size=40))
    header = Header(
        draw(U64),
        draw(U64),
        draw(U32),
        draw(st.sampled_from([Kind.DATA, Kind.EPOCH_START, Kind.REGISTER])),
        draw(U64),
        draw(U64),
        draw(U64),
        draw(U64),
        draw(U32) | len(body) << 32,
        draw(U64),
    )
    return Entry(header, body)


def of(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Values of an annotation."""
    if hint == Body:
        return of(bytes)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = [each for each in typing.get_args(hint) if each is not type(None)]
        return st.none() | of(inner)
    if origin is tuple:
        return st.lists(of(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if hint is int:
        return st.integers(-1, 1 << 40) if name == "heard_ms_ago" else numbers(name)
    if hint is Refusal:
        return st.sampled_from(REFUSALS).flatmap(made)
    if hint is Entry:
        return entries()
    plain = {bool: st.booleans(), str: TEXT, bytes: st.binary(max_size=60)}
    if hint in plain:
        return plain[hint]
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return made(hint)


def numbers(name: str) -> st.SearchStrategy[int]:
    return U32 if name in ("count", "entries_max", "more") else U64


@functools.cache
def made(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a dataclass or named tuple."""
    hints = typing.get_type_hints(kind)
    return st.tuples(*[of(hints[name], name) for name in kind.__match_args__]).map(
        lambda values: kind(*values)
    )


any_message: st.SearchStrategy[Message] = st.sampled_from(MESSAGES).flatmap(made)
any_refusal: st.SearchStrategy[Refusal] = st.sampled_from(REFUSALS).flatmap(made)
