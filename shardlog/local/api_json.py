"""What the HTTP API is told, as JSON."""

from __future__ import annotations

from typing import Any

from shardlog.local.administration import BadRequest
from shardlog.protocol.coordination import (
    AbortChange,
    AcceptLoss,
    Command,
    Promote,
    Swap,
    TrimShard,
)
from shardlog.protocol.entry import EntryId
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.upkeep import Upkeep

Json = Any
BOUND_MAX = 1 << 60
DURABILITIES = ("Sync", "Relaxed")


class Body:
    """A JSON object; every field is asked for, and no other may be there."""

    def __init__(self, found: Json) -> None:
        if not isinstance(found, dict):
            raise BadRequest("the body is no JSON object")
        self._left = dict(found)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str) or not value:
            raise BadRequest(f"{name}: a text is needed")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._left.pop(name, default)
        if type(value) is not int:
            raise BadRequest(f"{name}: a whole number is needed")
        return int(value)

    def texts(self, name: str) -> list[str] | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadRequest(f"{name}: a list of texts is needed")
        return list(value)

    def quorum(self, name: str) -> QuorumPolicy:
        value = self._left.pop(name, None)
        if value is None:
            return QuorumPolicy()
        inner = Body(value)
        numbers = [inner._left.pop(each, None) for each in ("replication", "fencing")]
        inner.require_no_more()
        if any(each is not None and (type(each) is not int or each < 1) for each in numbers):
            raise BadRequest(f"{name}: replication and fencing are whole numbers from 1 on")
        return QuorumPolicy(*numbers)

    def bound(self, name: str) -> int:
        """0 if it is null, or not there."""
        value = self._left.pop(name, None)
        if value is None:
            return 0
        if type(value) is not int or not 1 <= value <= BOUND_MAX:
            raise BadRequest(f"{name}: a whole number from 1 to {BOUND_MAX}, or null")
        return int(value)

    def offset(self, name: str) -> int:
        value = self.number(name)
        if not 0 <= value <= BOUND_MAX:
            raise BadRequest(f"{name}: an offset is from 0 to {BOUND_MAX}")
        return value

    def inner(self, name: str) -> Body:
        return Body(self._left.pop(name, {}))

    def entry(self, name: str) -> EntryId:
        inner = Body(self._left.pop(name, None))
        entry = EntryId(inner.number("epoch"), inner.number("offset"))
        inner.require_no_more()
        return entry

    def require_no_more(self) -> None:
        if self._left:
            raise BadRequest(f"{next(iter(self._left))!r:.80} is not known here")


def bounds(body: Body) -> tuple[int, int]:
    """How many bytes are kept, and for how many milliseconds; 0 is no bound."""
    return body.bound("bytes"), body.bound("time_ms")


def upkeep(body: Body) -> Upkeep:
    retention = body.inner("retention")
    bytes_max, time_ms = bounds(retention)
    retention.require_no_more()
    durability = body.text("durability", "Sync")
    if durability not in DURABILITIES:
        raise BadRequest(f"durability: {durability!r:.80} is neither Sync nor Relaxed")
    return Upkeep(retention_bytes=bytes_max, retention_ms=time_ms, relaxed=durability == "Relaxed")


def operation(body: Body) -> Command:
    name = body.text("operation")
    command: Command
    match name:
        case "promote":
            command = Promote(body.text("node"))
        case "swap":
            command = Swap(body.text("old"), body.text("new"))
        case "abort":
            command = AbortChange()
        case "trim":
            command = TrimShard(body.offset("first"))
        case "accept-loss":
            command = AcceptLoss(body.entry("entry"))
        case _:
            known = "promote, swap, abort, trim or accept-loss"
            raise BadRequest(f"{name!r:.80} is no operation: {known}")
    body.require_no_more()
    return command
