"""Refusals as three numbers and a text, for the frame REFUSED.

A leader under load says `Overloaded` as often as it answers, so this travels in a fixed struct.
The table is the format: a code is never given twice, and a new refusal gets the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from shardlog.protocol import failures as refusals
from shardlog.protocol.entry import EntryId, Member
from shardlog.protocol.failures import Refusal
from shardlog.transport.failures import MalformedFrame


class Packed(NamedTuple):
    """What a refusal is made of on the wire; what a type does not use is 0 or empty."""

    code: int
    a: int = 0
    b: int = 0
    c: int = 0
    text: str = ""


class Shape(NamedTuple):
    """How the attributes of a refusal become numbers and a text, and back."""

    pack: Callable[[Any], tuple[int, int, int, str]]
    unpack: Callable[[int, int, int, str], tuple[Any, ...]]


def _hint(a: int, b: int, c: int, text: str) -> tuple[str | None]:
    return (text if a else None,)


NUMBER = Shape(lambda v: (v[0], 0, 0, ""), lambda a, b, c, t: (a,))
TWO_NUMBERS = Shape(lambda v: (v[0], v[1], 0, ""), lambda a, b, c, t: (a, b))
THREE_NUMBERS = Shape(lambda v: (v[0], v[1], v[2], ""), lambda a, b, c, t: (a, b, c))
TEXT = Shape(lambda v: (0, 0, 0, v[0]), lambda a, b, c, t: (t,))
TEXT_AND_NUMBER = Shape(lambda v: (v[1], 0, 0, v[0]), lambda a, b, c, t: (t, a))
OPTIONAL_TEXT = Shape(lambda v: (int(v[0] is not None), 0, 0, v[0] or ""), _hint)
ENTRY = Shape(lambda v: (*v[0], 0, ""), lambda a, b, c, t: (EntryId(a, b),))
MEMBER = Shape(lambda v: (v[0][1], 0, 0, v[0][0]), lambda a, b, c, t: (Member(t, a),))
MEMBER_AND_NUMBER = Shape(
    lambda v: (v[0][1], v[1], 0, v[0][0]), lambda a, b, c, t: (Member(t, a), b)
)

CODES: dict[int, tuple[type[Refusal], Shape]] = {
    1: (refusals.NoReplica, TWO_NUMBERS),
    2: (refusals.WrongShard, TEXT),
    3: (refusals.StaleEpoch, NUMBER),
    4: (refusals.WrongRole, TEXT_AND_NUMBER),
    5: (refusals.NotLeader, OPTIONAL_TEXT),
    6: (refusals.UnknownMember, MEMBER),
    7: (refusals.OffsetGap, NUMBER),
    8: (refusals.WrongParent, ENTRY),
    9: (refusals.DifferentEntry, ENTRY),
    10: (refusals.DivergenceMismatch, TWO_NUMBERS),
    11: (refusals.BelowCommit, NUMBER),
    12: (refusals.NotReady, TEXT),
    13: (refusals.StandbyLagging, NUMBER),
    14: (refusals.LostDisk, MEMBER_AND_NUMBER),
    15: (refusals.Illegal, TEXT),
    16: (refusals.UnsafeQuorum, THREE_NUMBERS),
    17: (refusals.SessionUnknown, NUMBER),
    18: (refusals.RequestGap, NUMBER),
    19: (refusals.ReplyForgotten, NUMBER),
    20: (refusals.Overloaded, NUMBER),
    21: (refusals.OffsetTrimmed, NUMBER),
    22: (refusals.CorruptEntry, ENTRY),
    23: (refusals.EntryLost, TWO_NUMBERS),
    24: (refusals.OtherElection, NUMBER),
    25: (refusals.DifferentRequest, NUMBER),
}
_BY_TYPE = {kind: (code, shape) for code, (kind, shape) in CODES.items()}


def pack_refusal(refusal: Refusal) -> Packed:
    code, shape = _BY_TYPE[type(refusal)]
    values = [getattr(refusal, field.name) for field in fields(refusal)]
    return Packed(code, *shape.pack(values))


def unpack_refusal(packed: Packed) -> Refusal:
    """Only the one way in which `pack_refusal` would have written it is accepted."""
    known = CODES.get(packed.code)
    if known is None:
        raise MalformedFrame(f"no refusal has the code {packed.code}")
    kind, shape = known
    refusal: Refusal = kind(*shape.unpack(packed.a, packed.b, packed.c, packed.text))
    if pack_refusal(refusal) != packed:
        raise MalformedFrame(f"{kind.__name__} with more than it has")
    return refusal
