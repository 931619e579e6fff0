"""Protobuf codecs: every message and refusal, there and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardlog.protocol.entry import Member
from shardlog.protocol.failures import NotLeader
from shardlog.protocol.messages import AddFollower, FenceAnswer, StatusReport
from shardlog.transport import wire
from shardlog.transport.failures import MalformedMessage
from shardlog.transport.generated import messages_pb2
from transport.values import MESSAGES, REFUSALS, any_message, any_refusal, made


def test_every_message_has_a_codec():
    assert set(wire.message_types()) == set(MESSAGES)
    assert len(MESSAGES) > 40, "the test looks right"


def test_every_refusal_has_a_codec():
    assert set(wire.REFUSAL.by_type) == set(REFUSALS)
    assert len(REFUSALS) > 20, "the test looks right"


@pytest.mark.parametrize("kind", MESSAGES)
def test_each_message_comes_back(kind):
    @settings(max_examples=30)
    @given(made(kind))
    def comes_back(message):
        again = wire.decode_message(wire.encode_message(message))
        assert again == message
        assert type(again) is kind

    comes_back()


@given(any_refusal)
def test_refusals_come_back(refusal):
    assert wire.decode_refusal(wire.encode_refusal(refusal)) == refusal


@given(st.binary(max_size=200))
def test_random_bytes_are_a_message_or_malformed(data):
    try:
        wire.decode_message(data)
    except MalformedMessage:
        return


@given(any_message, st.data())
def test_mutated_bytes_are_a_message_or_malformed(message, data):
    encoded = bytearray(wire.encode_message(message))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        wire.decode_message(bytes(encoded))
    except MalformedMessage:
        return


def test_none_and_empty_are_not_the_same():
    for hint in (None, ""):
        assert wire.decode_refusal(wire.encode_refusal(NotLeader(hint))) == NotLeader(hint)


def test_never_heard():
    report = StatusReport(1, Member("a", 1), "fenced", 1, (), 0, 0, None, -1, False, False, (), ())
    assert wire.decode_message(wire.encode_message(report)) == report


def test_nothing_is_no_message():
    with pytest.raises(MalformedMessage, match="nothing that is known"):
        wire.decode_message(b"")


def test_a_part_that_must_be_there():
    lacking = messages_pb2.Message(add_follower=messages_pb2.AddFollower(epoch=1))
    with pytest.raises(MalformedMessage, match="AddFollower without answer"):
        wire.decode_message(lacking.SerializeToString())


def test_an_enum_that_is_not_known():
    answer = FenceAnswer(Member("a", 1), 1, (), 0, 0, 0, 0, False, False, ())
    made_so = wire.MESSAGE.encode(AddFollower(1, answer, False))
    made_so.add_follower.answer.slots.add(epoch=1, mark=77)
    with pytest.raises(MalformedMessage, match="no Mark has number 77"):
        wire.decode_message(made_so.SerializeToString())


def test_fields_of_a_newer_version_are_passed_over():
    report = wire.encode_message(FenceAnswer(Member("a", 1), 1, (), 0, 0, 0, 0, False, False, ()))
    newer = report + b"\xa0\x06\x01"  # field 100, a number
    assert wire.decode_message(newer) == wire.decode_message(report)
