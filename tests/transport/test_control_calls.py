"""Envelopes as calls and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.coordinator.calls import GATHERED_MAX
from shardlog.protocol import messages
from shardlog.protocol.messages import Envelope
from shardlog.transport.control_calls import (
    ANSWERS,
    CALLS,
    FETCH,
    MANY_BYTES_MAX,
    MANY_MAX,
    NEWS,
    RPCS,
    SERVICE,
    STATUS_OF_MANY,
    Chunk,
    NewsRequest,
    NodeNews,
    decode_answer,
    decode_answers,
    decode_chunk,
    decode_news,
    decode_news_request,
    decode_status_of_many,
    encode_answer,
    encode_answers,
    encode_chunk,
    encode_news,
    encode_news_request,
    encode_status_of_many,
)
from shardlog.transport.failures import Malformed, MalformedMessage, VersionMismatch
from shardlog.transport.generated import control_pb2
from transport.values import TEXT, U32, U64, made

ASKED = Envelope("orders", "operator", 0, "node-1", 5, messages.Fence(7))


def enveloped(kinds):
    messages_drawn = st.sampled_from(kinds).flatmap(made)
    return st.builds(Envelope, TEXT, TEXT, U64, TEXT, U64, messages_drawn)


@given(enveloped([*CALLS, messages.Fetch]))
def test_calls_come_back(envelope):
    call = CALLS.get(type(envelope.message), FETCH)
    where = {"b": "10.0.0.2:7000"}
    assert call.decode(call.encode(envelope, where)) == (envelope, where)


@given(enveloped(ANSWERS))
def test_answers_come_back(envelope):
    assert decode_answer(encode_answer(ASKED, envelope)) == envelope


def test_nothing_to_tell():
    assert decode_answer(encode_answer(ASKED, None)) is None


@given(st.builds(Chunk, U64, st.binary(), U32, st.booleans()))
def test_chunks_come_back(chunk):
    assert decode_chunk(encode_chunk(chunk)) == chunk


def test_every_rpc_has_a_message():
    service = control_pb2.DESCRIPTOR.services_by_name["Control"]
    assert {method.name for method in service.methods} == {*RPCS, FETCH.rpc, STATUS_OF_MANY, NEWS}
    assert SERVICE == "shardlog.v1.Control"
    assert FETCH.path == "/shardlog.v1.Control/FetchSnapshot"
    for method in service.methods:
        assert method.input_type.name == f"{method.name}Call"


@given(st.lists(enveloped([messages.StatusRequest]), max_size=5))
def test_many_questions_come_back(envelopes):
    assert decode_status_of_many(encode_status_of_many(envelopes)) == envelopes


@given(st.lists(st.none() | enveloped([messages.Created, messages.WritesPaused]), max_size=3))
def test_many_answers_come_back(answers):
    assert decode_answers(encode_answers(answers)) == answers


@given(st.builds(NewsRequest, TEXT, U64, U64), st.builds(NodeNews, U64, U64, st.tuples(TEXT, TEXT)))
def test_news_come_back(asked, news):
    assert decode_news_request(encode_news_request(asked)) == asked
    assert decode_news(encode_news(news)) == news


def test_one_question_that_cannot_be_understood_spoils_no_other():
    good = Envelope("orders", "operator", 0, "node-1", 5, messages.StatusRequest(7))
    call = control_pb2.StatusOfManyCall.FromString(encode_status_of_many([good, good, good]))
    call.calls[0].route.version = 9
    call.calls[1].ClearField("route")
    assert decode_status_of_many(call.SerializeToString()) == [None, None, good]


def test_S15_questions_are_bounded_before_they_are_parsed():
    asked = Envelope("s", "o", 0, "n", 5, messages.StatusRequest(7))
    whole = encode_status_of_many([asked] * MANY_MAX)
    assert len(decode_status_of_many(whole)) == MANY_MAX
    with pytest.raises(MalformedMessage, match="more than 1000 parts"):
        decode_status_of_many(encode_status_of_many([asked] * (MANY_MAX + 1)))
    with pytest.raises(MalformedMessage, match="more than 1000 parts"):
        decode_status_of_many(b"\x0a\x00" * 250_000)
    long = Envelope("s" * MANY_BYTES_MAX, "o", 0, "n", 5, messages.StatusRequest(7))
    with pytest.raises(MalformedMessage, match="more than 1048576"):
        decode_status_of_many(encode_status_of_many([long]))
    assert GATHERED_MAX <= MANY_MAX


def test_news_of_another_version():
    for decode, kind in [
        (decode_news_request, control_pb2.NewsCall),
        (decode_news, control_pb2.NewsAnswer),
    ]:
        with pytest.raises(VersionMismatch, match="version 9 came"):
            decode(kind(version=9).SerializeToString())


DECODERS = [decode_answer, decode_chunk, decode_answers, decode_status_of_many, decode_news,
            decode_news_request]  # fmt: skip


@given(st.binary(max_size=100))
def test_random_bytes(data):
    for decode in [call.decode for call in CALLS.values()] + DECODERS:
        try:
            decode(data)
        except (Malformed, VersionMismatch):
            continue


def test_another_version():
    call = CALLS[messages.Fence]
    other = control_pb2.FenceCall.FromString(call.encode(ASKED, {}))
    other.route.version = 9
    with pytest.raises(VersionMismatch, match="version 9 came, this side speaks 1"):
        call.decode(other.SerializeToString())


def test_parts_that_must_be_there():
    call = CALLS[messages.Fence]
    with pytest.raises(MalformedMessage, match="Fence without a message"):
        call.decode(b"")
    bare = control_pb2.FenceCall(message={"epoch": 1}).SerializeToString()
    with pytest.raises(MalformedMessage, match="without a route"):
        call.decode(bare)
    with pytest.raises(MalformedMessage):
        decode_answer(b"")
