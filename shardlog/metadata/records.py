"""A shard's record as it is stored: JSON that a person can read, and that is read strictly.

A coordinator acts on what it reads, so nothing is guessed: every field is there, has its type and
fits the others, and there is no other.  A record that breaks this is `BadRecord`, with the key and
the field; one of a later format is `NewerRecord`, and an older Shardlog leaves it alone.  What is
encoded is decoded once before it is handed out: nobody else shall find a mistake that is ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from shardlog.metadata.failures import BadRecord, NewerRecord
from shardlog.metadata.store import require_key
from shardlog.protocol.entry import EntryId, Header, Kind, Member
from shardlog.protocol.messages import Operation, Reconfiguration
from shardlog.protocol.quorum import Ensemble, QuorumPolicy
from shardlog.protocol.shard import Joining, Phase, Shard, Status
from shardlog.protocol.upkeep import USUAL, Upkeep

FORMAT = 4
UPKEEP_FORMAT = 3
LOSSES_FORMAT = 2
PLAIN_FORMAT = 1
"""A record has the lowest format that can tell it, so that who knows no later one can go on."""
SHARDS = "shards/"
NUMBER_MAX = 2**64 - 1

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Json = Any
"""What `json.loads` gives."""

_SHARD = (
    "format",
    "name",
    "status",
    "epoch",
    "leader",
    "ensemble",
    "quorum",
    "change",
    "phase",
    "joining",
    "removed",
    "preferred",
    "halted",
)


_LOSSES = ("accepting", "losses")
"""Only in a record that has them, which is then of format 2; or of format 3."""
_UPKEEP = ("upkeep",)
"""Only in a record whose upkeep is not the usual one, which is then of format 3; or of format 4."""
_ELECTION = ("election", "changed_in")
"""Only in a record that has them, which is then of format 4."""


def shard_key(name: str) -> str:
    key = SHARDS + name
    require_key(key)
    return key


# --- writing -----------------------------------------------------------------------------------


def encode_shard(shard: Shard) -> bytes:
    key = shard_key(shard.name)
    written = _format_of(shard)
    values = (
        written,
        shard.name,
        shard.status.value,
        shard.epoch,
        _plain_member(shard.leader),
        _plain_members(shard.ensemble),
        {"replication": shard.quorum.replication, "fencing": shard.quorum.fencing},
        _plain_change(shard.change),
        shard.phase.value if shard.phase else None,
        _plain_joining(shard.joining),
        _plain_members(shard.removed),
        shard.preferred,
        shard.halted,
    )
    plain = dict(zip(_SHARD, values, strict=True))
    if written >= LOSSES_FORMAT:
        plain["accepting"] = _plain_entry(shard.accepting)
        plain["losses"] = [_plain_header(lost) for lost in shard.losses]
    if written >= UPKEEP_FORMAT:
        plain["upkeep"] = _plain_upkeep(shard.upkeep)
    if written >= FORMAT:
        plain["election"] = shard.election
        plain["changed_in"] = shard.changed_in
    value = json.dumps(plain, separators=(",", ":")).encode()
    if decode_shard(key, value) != shard:
        raise BadRecord(key, "", "cannot be stored without a loss")
    return value


def _format_of(shard: Shard) -> int:
    if shard.election or shard.changed_in:
        return FORMAT
    if shard.upkeep != USUAL:
        return UPKEEP_FORMAT
    return LOSSES_FORMAT if shard.accepting is not None or shard.losses else PLAIN_FORMAT


def _plain_member(member: Member | None) -> Json:
    return {"node": member.node, "incarnation": member.incarnation} if member else None


def _plain_members(members: Ensemble) -> Json:
    return [_plain_member(member) for member in members]


def _plain_change(change: Reconfiguration | None) -> Json:
    if change is None:
        return None
    return {
        "operation": change.operation.value,
        "before": _plain_members(change.before),
        "old": _plain_member(change.old),
        "new": _plain_member(change.new),
    }


def _plain_joining(joining: Joining | None) -> Json:
    if joining is None:
        return None
    return {
        "operation": joining.operation.value,
        "old": _plain_member(joining.old),
        "node": joining.node,
        "incarnation": joining.incarnation,
        "cancelled": joining.cancelled,
    }


def _plain_entry(entry: EntryId | None) -> Json:
    return {"epoch": entry.epoch, "offset": entry.offset} if entry else None


def _plain_header(header: Header) -> Json:
    return header._asdict() | {"kind": header.kind.name}


def _plain_upkeep(upkeep: Upkeep) -> Json:
    return {
        "version": upkeep.version,
        "retention_bytes": upkeep.retention_bytes,
        "retention_ms": upkeep.retention_ms,
        "relaxed": upkeep.relaxed,
    }


# --- reading -----------------------------------------------------------------------------------


def decode_shard(key: str, value: bytes) -> Shard:
    field = _Field(key, "", _parsed(key, value))
    _require_format(field)
    found = field.value["format"]
    has_losses, has_upkeep = found >= LOSSES_FORMAT, found >= UPKEEP_FORMAT
    has_election = found >= FORMAT
    field.require_fields(
        _SHARD + _LOSSES * has_losses + _UPKEEP * has_upkeep + _ELECTION * has_election
    )
    shard = Shard(
        name=field.at("name").text(),
        status=field.at("status").one_of(Status),
        epoch=field.at("epoch").number(),
        leader=field.at("leader").optional(_member),
        ensemble=field.at("ensemble").each(_member),
        quorum=_quorum(field.at("quorum")),
        change=field.at("change").optional(_change),
        phase=field.at("phase").optional(lambda phase: phase.one_of(Phase)),
        joining=field.at("joining").optional(_joining),
        removed=field.at("removed").each(_member),
        preferred=field.at("preferred").optional(_Field.text),
        halted=field.at("halted").optional(_Field.text),
        accepting=field.at("accepting").optional(_entry) if has_losses else None,
        losses=field.at("losses").each(_header) if has_losses else (),
        upkeep=_upkeep(field.at("upkeep")) if has_upkeep else USUAL,
        election=field.at("election").number() if has_election else 0,
        changed_in=field.at("changed_in").number() if has_election else 0,
    )
    if key != SHARDS + shard.name:
        field.at("name").refuse(f"{shard.name!r:.80} does not belong under this key")
    if (shard.change is None) != (shard.phase is None):
        field.at("phase").refuse("goes together with change")
    if shard.status is Status.DELETING and (shard.leader or shard.change or shard.joining):
        field.at("status").refuse("goes with no leader, change or joining")
    return shard


class _Field:
    """A value and where it stands, so that whatever is wrong with it can be told."""

    __slots__ = ("key", "path", "value")

    def __init__(self, key: str, path: str, value: Json) -> None:
        self.key = key
        self.path = path
        self.value = value

    def refuse(self, why: str) -> NoReturn:
        raise BadRecord(self.key, self.path, why)

    def at(self, name: str) -> _Field:
        return _Field(self.key, f"{self.path}.{name}" if self.path else name, self.value[name])

    def require_fields(self, names: tuple[str, ...]) -> None:
        if not isinstance(self.value, dict):
            self.refuse("is not an object")
        for name in names:
            if name not in self.value:
                _Field(self.key, self._below(name), None).refuse("is missing")
        for name in self.value:
            if name not in names:
                _Field(self.key, self._below(name), None).refuse("is not known")

    def _below(self, name: str) -> str:
        """A name that nobody knows may be anything; the message stays one line."""
        short = ascii(name)[1:-1][:80]
        return f"{self.path}.{short}" if self.path else short

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            self.refuse("is not a text, or an empty one")
        return str(self.value)

    def number(self, least: int = 0) -> int:
        if type(self.value) is not int or not least <= self.value <= NUMBER_MAX:
            self.refuse(f"is not a whole number from {least} to {NUMBER_MAX}")
        return int(self.value)

    def truth(self) -> bool:
        if type(self.value) is not bool:
            self.refuse("is neither true nor false")
        return bool(self.value)

    def one_of(self, kind: type[E]) -> E:
        if not isinstance(self.value, str) or self.value not in list(kind):
            self.refuse(f"is none of {', '.join(kind)}")
        return kind(self.value)

    def optional(self, read: Callable[[_Field], T]) -> T | None:
        return None if self.value is None else read(self)

    def each(self, read: Callable[[_Field], T]) -> tuple[T, ...]:
        if not isinstance(self.value, list):
            self.refuse("is not a list")
        fields = (
            _Field(self.key, f"{self.path}[{number}]", value)
            for number, value in enumerate(self.value)
        )
        return tuple(read(field) for field in fields)


def _parsed(key: str, value: bytes) -> Json:
    try:
        return json.loads(value.decode(), object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise BadRecord(key, "", f"is no JSON: {error!s:.80}") from error


def _without_doubles(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field stands there twice")
    return found


def _require_format(field: _Field) -> None:
    """First of all: of a later format nothing else is known."""
    if not isinstance(field.value, dict):
        field.refuse("is not an object")
    found = field.value.get("format")
    if type(found) is int and found > FORMAT:
        raise NewerRecord(field.key, found, FORMAT)
    if type(found) is not int or found < PLAIN_FORMAT:
        raise BadRecord(field.key, "format", f"is not {PLAIN_FORMAT} to {FORMAT}")


def _member(field: _Field) -> Member:
    field.require_fields(("node", "incarnation"))
    return Member(field.at("node").text(), field.at("incarnation").number())


def _entry(field: _Field) -> EntryId:
    field.require_fields(("epoch", "offset"))
    return EntryId(field.at("epoch").number(), field.at("offset").number())


def _header(field: _Field) -> Header:
    field.require_fields(Header._fields)
    kinds = [kind for kind in Kind if kind.name == field.at("kind").value]
    if not kinds:
        field.at("kind").refuse("is no kind of entry")
    numbers = {name: field.at(name).number() for name in Header._fields if name != "kind"}
    return Header(kind=kinds[0], **numbers)


def _upkeep(field: _Field) -> Upkeep:
    field.require_fields(("version", "retention_bytes", "retention_ms", "relaxed"))
    return Upkeep(
        version=field.at("version").number(),
        retention_bytes=field.at("retention_bytes").number(),
        retention_ms=field.at("retention_ms").number(),
        relaxed=field.at("relaxed").truth(),
    )


def _quorum(field: _Field) -> QuorumPolicy:
    field.require_fields(("replication", "fencing"))
    return QuorumPolicy(
        field.at("replication").optional(lambda count: count.number(least=1)),
        field.at("fencing").optional(lambda count: count.number(least=1)),
    )


def _require_old(field: _Field, operation: Operation, old: Member | None) -> None:
    if (old is None) != (operation is Operation.EXPAND):
        field.at("old").refuse(f"does not fit the operation {operation}")


def _change(field: _Field) -> Reconfiguration:
    field.require_fields(("operation", "before", "old", "new"))
    change = Reconfiguration(
        operation=field.at("operation").one_of(Operation),
        before=field.at("before").each(_member),
        old=field.at("old").optional(_member),
        new=field.at("new").optional(_member),
    )
    _require_old(field, change.operation, change.old)
    if (change.new is None) != (change.operation is Operation.CONTRACT):
        field.at("new").refuse(f"does not fit the operation {change.operation}")
    return change


def _joining(field: _Field) -> Joining:
    field.require_fields(("operation", "old", "node", "incarnation", "cancelled"))
    joining = Joining(
        operation=field.at("operation").one_of(Operation),
        old=field.at("old").optional(_member),
        node=field.at("node").text(),
        incarnation=field.at("incarnation").number(),
        cancelled=field.at("cancelled").truth(),
    )
    if joining.operation is Operation.CONTRACT:
        field.at("operation").refuse("nobody joins by contract")
    _require_old(field, joining.operation, joining.old)
    return joining
