"""Shard records as JSON: what is written is read, and nothing else is."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.metadata.failures import BadKey, BadRecord, NewerRecord
from shardlog.metadata.records import NUMBER_MAX, decode_shard, encode_shard, shard_key
from shardlog.metadata.store import VALUE_BYTES_MAX
from shardlog.protocol.entry import EntryId, Header, Kind, Member
from shardlog.protocol.messages import Operation, Reconfiguration
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Joining, Phase, Shard, Status
from shardlog.protocol.upkeep import USUAL, Upkeep

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metadata.md"

A, B, C, D = (Member(f"node-{name}", number) for number, name in enumerate("abcd", 1))
SHARD = Shard(
    name="orders",
    status=Status.STEADY,
    epoch=7,
    leader=A,
    ensemble=(A, B, C),
    quorum=QuorumPolicy(2, None),
    change=Reconfiguration(Operation.SWAP, (A, B, C), C, D),
    phase=Phase.PREPARE,
    joining=Joining(Operation.EXPAND, None, "node-e", 0),
    removed=(Member("node-c", 1),),
    preferred="node-b",
    halted="because",
)

texts = st.text(min_size=1, max_size=20)
numbers = st.integers(0, NUMBER_MAX)
members = st.builds(Member, texts, numbers)
ensembles = st.lists(members, max_size=7).map(tuple)
counts = st.none() | st.integers(1, 7)
changes = st.one_of(
    st.builds(Reconfiguration, st.just(Operation.SWAP), ensembles, members, members),
    st.builds(Reconfiguration, st.just(Operation.EXPAND), ensembles, st.none(), members),
    st.builds(Reconfiguration, st.just(Operation.CONTRACT), ensembles, members, st.none()),
)
joinings = st.one_of(
    st.builds(Joining, st.just(Operation.SWAP), members, texts, numbers, st.booleans()),
    st.builds(Joining, st.just(Operation.EXPAND), st.none(), texts, numbers, st.booleans()),
)


entries = st.builds(EntryId, numbers, numbers)
headers = st.builds(
    Header, *(st.sampled_from(Kind) if name == "kind" else numbers for name in Header._fields)
)


@st.composite
def shards(draw: st.DrawFn) -> Shard:
    status = draw(st.sampled_from(Status))
    going = status is Status.DELETING
    change = draw(st.none() if going else st.none() | changes)
    return Shard(
        name=draw(st.from_regex(r"[a-z0-9./-]{1,60}", fullmatch=True)),
        status=status,
        epoch=draw(numbers),
        leader=draw(st.none() if going else st.none() | members),
        ensemble=draw(ensembles),
        quorum=QuorumPolicy(draw(counts), draw(counts)),
        change=change,
        phase=draw(st.sampled_from(Phase)) if change else None,
        joining=draw(st.none() if going else st.none() | joinings),
        removed=draw(ensembles),
        preferred=draw(st.none() | texts),
        halted=draw(st.none() | texts),
        accepting=draw(st.none() | entries),
        losses=draw(st.lists(headers, max_size=1).map(tuple)),
        upkeep=draw(st.just(USUAL) | st.builds(Upkeep, numbers, numbers, numbers, st.booleans())),
    )


@given(shards())
def test_what_is_written_is_read(shard: Shard):
    value = encode_shard(shard)
    assert decode_shard(shard_key(shard.name), value) == shard
    assert value.isascii()
    assert len(value) < VALUE_BYTES_MAX


@given(shards(), st.data())
def test_changed_bytes_are_refused_or_are_another_record(shard: Shard, data: st.DataObject):
    value = bytearray(encode_shard(shard))
    at = data.draw(st.integers(0, len(value) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "double"]))
    if how == "cut":
        del value[at:]
    elif how == "flip":
        value[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        value[at:at] = value[at : at + 10]
    key = shard_key(shard.name)
    with suppress(BadRecord):
        other = decode_shard(key, bytes(value))
        assert decode_shard(key, encode_shard(other)) == other


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_type(value: bytes):
    with pytest.raises(BadRecord):
        decode_shard("shards/a", value)


def test_a_record_without_losses_is_as_it_was_before_there_were_any():
    """Who knows format 1 alone goes on with it; and what was written then is still read."""
    value = encode_shard(replace(SHARD, change=None, phase=None, joining=None, removed=()))
    old = (
        b'{"format":1,"name":"orders","status":"STEADY","epoch":7,'
        b'"leader":{"node":"node-a","incarnation":1},"ensemble":['
        b'{"node":"node-a","incarnation":1},{"node":"node-b","incarnation":2},'
        b'{"node":"node-c","incarnation":3}],"quorum":{"replication":2,"fencing":null},'
        b'"change":null,"phase":null,"joining":null,"removed":[],"preferred":"node-b",'
        b'"halted":"because"}'
    )
    assert value == old
    assert decode_shard("shards/orders", old).losses == ()


def test_a_record_with_losses_is_of_a_format_of_its_own():
    lost = Header(3, 40, 2, Kind.DATA, 5, 6, 7, 8, 9, 10)
    value = encode_shard(replace(SHARD, losses=(lost,)))
    found = json.loads(value)
    assert found["format"] == 2
    assert found["losses"] == [
        {"epoch": 3, "base": 40, "count": 2, "kind": "DATA", "session": 5, "request": 6,
         "timestamp_ms": 7, "parent": 8, "body_checksum": 9, "checksum": 10}
    ]  # fmt: skip
    del found["losses"]
    assert refusal(found).field == "losses"


def test_a_record_with_terms_is_of_a_format_of_its_own():
    """Who does not know retention leaves it alone, instead of keeping everything."""
    value = encode_shard(replace(SHARD, upkeep=Upkeep(3, 10, 0, relaxed=True)))
    found = json.loads(value)
    assert found["format"] == 3
    assert found["upkeep"] == {
        "version": 3, "retention_bytes": 10, "retention_ms": 0, "relaxed": True
    }  # fmt: skip
    found["upkeep"]["relaxed"] = 1
    assert refusal(found).field == "upkeep.relaxed"
    del found["upkeep"]
    assert refusal(found).field == "upkeep"


def plain() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_shard(SHARD))
    return found


def refusal(record: object) -> BadRecord:
    with pytest.raises(BadRecord) as caught:
        decode_shard("shards/orders", json.dumps(record).encode())
    assert caught.value.key == "shards/orders"
    assert str(caught.value).startswith("shards/orders: ")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 0),
        ("format", "1"),
        ("format", True),
        ("format", None),
        ("name", "payments"),
        ("name", ""),
        ("name", None),
        ("status", "steady"),
        ("status", "GONE"),
        ("status", 1),
        ("epoch", -1),
        ("epoch", 1.0),
        ("epoch", True),
        ("epoch", "7"),
        ("epoch", NUMBER_MAX + 1),
        ("leader", "node-a"),
        ("leader.node", ""),
        ("leader.incarnation", None),
        ("leader.zone", "x"),
        ("ensemble", None),
        ("ensemble", {}),
        ("ensemble[1]", None),
        ("ensemble[2].incarnation", -3),
        ("quorum", None),
        ("quorum.replication", 0),
        ("quorum.fencing", "all"),
        ("change.operation", "grow"),
        ("change.old", None),
        ("change.new", None),
        ("change.before[0].node", 3),
        ("phase", "DONE"),
        ("phase", None),
        ("joining.operation", "contract"),
        ("joining.old", {"node": "node-a", "incarnation": 1}),
        ("joining.cancelled", 0),
        ("joining.since", 0),
        ("removed", "node-c"),
        ("preferred", 1),
        ("halted", ""),
        ("colour", "red"),
        (r"two\nlines", "red"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object):
    record = plain()
    *path, last = field.replace("[", ".").replace("]", "").split(".")
    into: Any = record
    for step in path:
        into = into[int(step) if step.isdigit() else step]
    into[int(last) if last.isdigit() else last.replace(r"\n", "\n")] = value
    assert refusal(record).field == field


@pytest.mark.parametrize("field", sorted(plain()))
def test_a_missing_field_is_named(field: str):
    record = plain()
    del record[field]
    assert refusal(record).field == field


def test_a_newer_format_is_told_from_a_bad_record():
    failure = refusal({"format": 5, "anything": "else"})
    assert isinstance(failure, NewerRecord)
    assert (failure.field, failure.found) == ("format", 5)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"{",
        b"[" * 60_000,
        b"9" * 60_000,
        b'{"format":1,"format":1}',
        encode_shard(SHARD) + b"x",
    ],
)
def test_what_is_no_object(value: bytes):
    with pytest.raises(BadRecord) as caught:
        decode_shard("shards/orders", value)
    assert caught.value.field == ""


def broken_shards() -> list[Callable[[], Shard]]:
    return [
        lambda: Shard("a", Status.STEADY, -1, None, ()),
        lambda: Shard("a", Status.STEADY, 1, None, (), phase=Phase.COMMIT),
        lambda: Shard("a", Status.STEADY, 1, None, (), halted=""),
        lambda: Shard("a", Status.DELETING, 1, A, ()),
        lambda: Shard("a", Status.STEADY, 1, Member("", 1), ()),
    ]


@pytest.mark.parametrize("make", broken_shards())
def test_what_could_not_be_read_is_not_written(make: Callable[[], Shard]):
    with pytest.raises(BadRecord):
        encode_shard(make())


@pytest.mark.parametrize("name", ["a b", "ü", "a" * 600])
def test_a_name_that_makes_no_key(name: str):
    with pytest.raises(BadKey):
        shard_key(name)


def test_the_document_shows_this_record():
    example = DOCUMENT.read_text().partition("```json\n")[2].partition("```")[0]
    shard = decode_shard("shards/orders", example.encode())
    assert json.loads(encode_shard(shard)) == json.loads(example)
    assert shard.change
    assert shard.phase is Phase.COMMIT
