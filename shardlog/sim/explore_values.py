"""Machine states as values: canonical, renamed, and numbered.

The explorer compares whole states, so two machines that can never behave differently have to be
equal.  `canonical` copies any value of the protocol with its dictionaries in the order of their
keys and its ensembles in the order of their names, because neither order decides anything but the
order of sends, and the explorer delivers messages in every order anyway.  The same walk replaces
names, which is all that symmetry reduction needs.

A machine is kept as an object that nobody changes, found by its `key`; whoever wants to step it
takes a copy.  Frozen parts are shared between copies.  `Numbers` gives each distinct value a small
number, so that a world state is a tuple of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, TypeVar

from shardlog.protocol.entry import Member
from shardlog.protocol.messages import FenceAnswer

Names = Mapping[str, str]
Copy = Callable[[Any, Names], Any]
T = TypeVar("T")

NO_NAMES: Names = {}
"""Rename nothing, but bring everything in order."""


def canonical(value: Any, names: Names = NO_NAMES) -> Any:
    """A copy of `value` in canonical order, with every node and coordinator renamed."""
    kind = type(value)
    copy = _COPIES.get(kind)
    if copy is None:
        copy = _COPIES[kind] = _copy_for(kind)
    return copy(value, names)


def _copy_for(kind: type) -> Copy:
    """How values of one type are copied; worked out once for each type."""
    if issubclass(kind, Enum):
        return _same
    if is_dataclass(kind):
        return _dataclass_copy(kind)
    if issubclass(kind, tuple):
        return _named_tuple
    if hasattr(kind, "__slots__"):
        return _slots_copy(kind)
    return _same


def _same(value: Any, _: Names) -> Any:
    return value


def _string(value: str, names: Names) -> str:
    return names.get(value, value)


def _named_tuple(value: Any, names: Names) -> Any:
    return type(value)(*[canonical(each, names) for each in value])


def _tuple(value: tuple[Any, ...], names: Names) -> tuple[Any, ...]:
    if not value:
        return value
    copied = [canonical(each, names) for each in value]
    if type(copied[0]) is Member and type(copied[-1]) is Member:
        copied.sort()
    elif type(copied[0]) is FenceAnswer:
        copied.sort(key=_by_member)
    return tuple(copied)


def _by_member(answer: FenceAnswer) -> Member:
    return answer.member


def _list(value: list[Any], names: Names) -> list[Any]:
    return [canonical(each, names) for each in value]


def _dict(value: dict[Any, Any], names: Names) -> dict[Any, Any]:
    items = [(canonical(key, names), canonical(each, names)) for key, each in value.items()]
    items.sort(key=_first)
    return dict(items)


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


def _set(value: set[Any], names: Names) -> set[Any]:
    return {canonical(each, names) for each in value}


def _dataclass_copy(kind: type) -> Copy:
    """All dataclasses of the protocol are frozen."""
    parts = tuple(each.name for each in fields(kind))

    def copy(value: Any, names: Names) -> Any:
        return kind(*[canonical(getattr(value, part), names) for part in parts])

    return copy if parts else _same


def _slots_copy(kind: type) -> Copy:
    parts = slots_of(kind)

    def copy(value: Any, names: Names) -> Any:
        made: Any = object.__new__(kind)
        for part in parts:
            inside = getattr(value, part)
            if type(inside) not in _PLAIN:
                inside = canonical(inside, names)
            setattr(made, part, inside)
        return made

    return copy


def slots_of(kind: type) -> tuple[str, ...]:
    return tuple(part for each in kind.__mro__ for part in getattr(each, "__slots__", ()))


_PLAIN = frozenset({int, bool, bytes, type(None)})
_COPIES: dict[type, Copy] = {
    str: _string,
    tuple: _tuple,
    list: _list,
    dict: _dict,
    set: _set,
    int: _same,
    bool: _same,
    bytes: _same,
    type(None): _same,
}


def copied(value: T) -> T:
    """A machine to step, apart from the one that is remembered.  What is frozen is shared."""
    kind = type(value)
    parts = _PARTS.get(kind)
    if parts is None:
        parts = _PARTS[kind] = slots_of(kind)
    made = object.__new__(kind)
    for part in parts:
        inside = getattr(value, part)
        how = type(inside)
        if how not in _FROZEN:
            if how is list:
                inside = inside[:]
            elif how is dict:
                inside = {each: _copied_inside(inside[each]) for each in inside}
            elif how is set:
                inside = set(inside)
            elif _is_frozen(how):
                _FROZEN.add(how)
            else:
                inside = copied(inside)
        setattr(made, part, inside)
    return made


def _copied_inside(value: Any) -> Any:
    """What stands in a dictionary: a list of frozen values, a frozen value, or a part."""
    kind = type(value)
    if kind in _FROZEN or _is_frozen(kind):
        return value
    return value[:] if kind is list else copied(value)


def _is_frozen(kind: type) -> bool:
    return (
        is_dataclass(kind) or issubclass(kind, tuple | Enum) or not hasattr(kind, "__slots__")
    ) and kind not in (list, dict, set)


_PARTS: dict[type, tuple[str, ...]] = {}
_FROZEN: set[type] = {int, bool, bytes, str, tuple, type(None)}


def key(value: Any) -> Hashable:
    """What a canonical value is told apart by."""
    kind = type(value)
    if kind in _FROZEN:
        found: Hashable = value
        return found
    make = _KEYS.get(kind)
    if make is None:
        make = _KEYS[kind] = _key_for(kind)
    return make(value)


def _key_for(kind: type) -> Callable[[Any], Hashable]:
    if _is_frozen(kind):
        _FROZEN.add(kind)
        return lambda value: value
    getter = attrgetter(*slots_of(kind))
    frozen = _FROZEN
    return lambda value: tuple(
        [each if type(each) in frozen else key(each) for each in getter(value)]
    )


_KEYS: dict[type, Callable[[Any], Hashable]] = {
    list: lambda value: tuple([key(each) for each in value]),
    dict: lambda value: tuple([(each, key(value[each])) for each in value]),
    set: frozenset,
}


class Numbers(Generic[T]):
    """Distinct values, numbered from 0 in the order in which they were met."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, int] = {}
        self.values: list[T] = []

    def __len__(self) -> int:
        return len(self.values)

    def of(self, key: Hashable, value: T) -> int:
        """The number of the value that `key` stands for."""
        number = self._by_key.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number
