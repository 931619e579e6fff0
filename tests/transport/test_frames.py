"""The frame decoder: whatever the pieces, the same frames, and one typed failure."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.transport import frames
from shardlog.transport.failures import FrameTooLarge, MalformedFrame
from shardlog.transport.frame_messages import from_message, to_message
from shardlog.transport.frames import FIXED, HEAD, Buffer, Decoder, Frame, FrameType
from transport.values import any_message


def joined(buffers: list[Buffer]) -> bytes:
    return b"".join(buffers)


def stream() -> bytes:
    """One frame of each length class."""
    parts = [
        frames.encode_append(7, 1, 2, 3, 4, b"x" * 300),
        frames.encode_appended(7, 1, 2, 99),
        frames.encode(FrameType.MESSAGE, 0),
        frames.encode_heartbeat(65535, 1, 2, 3, 4, True),
        frames.encode_append(7, 1, 3, 3, 4, b""),
        frames.encode_register(1, (1 << 64) - 1),
    ]
    return b"".join(joined(part) for part in parts)


def told(found: list[Frame]) -> list[tuple[int, int, int, bytes]]:
    return [(each.type, each.flags, each.channel, bytes(each.payload)) for each in found]


def fed(data: bytes, cuts: list[int], frame_bytes_max: int = frames.FRAME_BYTES_MAX):
    """The frames, and the failure if there is one, with the data cut at these positions."""
    decoder, found = Decoder(frame_bytes_max), []
    edges = [0, *sorted(cuts), len(data)]
    for start, stop in zip(edges, edges[1:], strict=False):  # noqa: RUF007
        try:
            found += decoder.feed(data[start:stop])
        except MalformedFrame as failure:
            return told(found + failure.before), (type(failure), str(failure))
    return told(found), None


def test_frames_come_out_whole():
    found = Decoder().feed(stream())
    assert [each.type for each in found] == [18, 19, 8, 35, 18, 16]
    assert found[0].type == FrameType.APPEND
    assert found[3].channel == 65535
    assert found[3].flags == frames.HEARTBEAT_QUORUM_FRESH
    assert bytes(found[0].payload[FIXED[FrameType.APPEND].size :]) == b"x" * 300


def test_cut_at_every_position():
    data = stream()
    whole = fed(data, [])
    for cut in range(len(data)):
        assert fed(data, [cut]) == whole
    assert fed(data, list(range(len(data)))) == whole, "byte by byte"


@given(st.lists(st.integers(0, len(stream())), max_size=6))
def test_cut_anywhere(cuts):
    assert fed(stream(), cuts) == fed(stream(), [])


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=4))
def test_random_bytes(data, cuts):
    cuts = [min(cut, len(data)) for cut in cuts]
    assert fed(data, cuts) == fed(data, [])


@given(st.data())
def test_mutated_streams(data):
    mutated = bytearray(stream())
    for _ in range(data.draw(st.integers(1, 5))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    cuts = data.draw(st.lists(st.integers(0, len(mutated)), max_size=4))
    assert fed(bytes(mutated), cuts) == fed(bytes(mutated), [])
    for kind, flags, channel, payload in fed(bytes(mutated), [])[0]:
        understood(Frame(kind, flags, channel, memoryview(payload)))


@given(st.sampled_from(list(FrameType)), st.binary(max_size=400), st.integers(0, 1))
def test_random_payloads(kind, tail, flags):
    payload = tail[: FIXED[kind].size].ljust(FIXED[kind].size, b"\0")
    if kind in frames.OPEN_ENDED:
        payload += tail[FIXED[kind].size :]
    (frame,) = Decoder().feed(
        joined(frames.encode(kind, 1, payload, flags & frames.FLAGS.get(kind, 0)))
    )
    understood(frame)


def understood(frame: Frame) -> None:
    """A message or a typed failure, and nothing else."""
    try:
        to_message(frame)
    except MalformedFrame:
        return


@given(any_message, st.integers(0, 65535))
def test_messages_come_back(message, channel):
    (frame,) = Decoder().feed(joined(from_message(channel, message)))
    assert frame.channel == channel
    assert to_message(frame) == message


@given(any_message, st.data())
def test_truncated_payloads(message, data):
    (frame,) = Decoder().feed(joined(from_message(1, message)))
    shortest = FIXED[FrameType(frame.type)].size
    if frame.type in frames.OPEN_ENDED and len(frame.payload) > shortest:
        keep = data.draw(st.integers(shortest, len(frame.payload) - 1))
        understood(frame._replace(payload=frame.payload[:keep]))


@pytest.mark.parametrize("kind", sorted(set(range(256)) - set(FrameType)))
def test_types_that_are_none(kind):
    with pytest.raises(MalformedFrame, match=f"no frame has type {kind}"):
        Decoder().feed(HEAD.pack(0, kind, 0, 0))


@pytest.mark.parametrize("kind", list(FrameType))
def test_lengths(kind):
    size = FIXED[kind].size
    wrong = [size - 1] if size else []
    wrong += [] if kind in frames.OPEN_ENDED else [size + 1]
    for length in wrong:
        with pytest.raises(MalformedFrame, match=f"{kind.name} cannot have {length} bytes"):
            Decoder().feed(HEAD.pack(length, kind, 0, 0))


@pytest.mark.parametrize("kind", list(FrameType))
def test_flags(kind):
    for bit in range(8):
        if not frames.FLAGS.get(kind, 0) & 1 << bit:
            with pytest.raises(MalformedFrame, match="has no flags"):
                Decoder().feed(HEAD.pack(FIXED[kind].size, kind, 1 << bit, 0))


def test_too_large_is_known_from_the_head():
    decoder = Decoder(frame_bytes_max=100)
    decoder.feed(HEAD.pack(100, FrameType.MESSAGE, 0, 0) + bytes(100))
    with pytest.raises(FrameTooLarge, match="MESSAGE of 101 bytes, more than 100"):
        decoder.feed(HEAD.pack(101, FrameType.MESSAGE, 0, 0))
    with pytest.raises(FrameTooLarge):
        decoder.feed(b"")


def test_frames_before_the_bad_one_are_not_lost():
    with pytest.raises(MalformedFrame) as caught:
        Decoder().feed(stream() + HEAD.pack(0, 255, 0, 0))
    assert len(caught.value.before) == 6


def test_nothing_is_reserved_for_a_promise():
    decoder = Decoder()
    decoder.feed(HEAD.pack(frames.FRAME_BYTES_MAX, FrameType.MESSAGE, 0, 0) + b"abc")
    assert decoder.waiting_bytes == 11


def test_payloads_stay_as_they_are():
    """A view may be kept: what comes later is written elsewhere."""
    decoder, data = Decoder(), stream()
    first = decoder.feed(data[:100])
    found = first + decoder.feed(data[100:] + data[:50])
    kept = told(found)
    decoder.feed(data[50:] + data)
    assert told(found) == kept


def test_bodies_are_not_joined():
    body = b"b" * 1000
    assert frames.encode_append(1, 2, 3, 4, 5, body)[1] is body
    raw: list[Buffer] = [b"h" * 80, body]
    assert frames.encode_entries(1, 2, 3, 4, 1, raw)[2] is body
    assert frames.encode_read_result(1, 2, 3, 1, raw)[2] is body
    assert frames.encode_fetched(1, 2, 1, 0, raw)[2] is body


def test_numbers_in_the_encoders():
    """Encoders write types and lengths as literals, for speed."""
    made = {
        FrameType.APPEND: frames.encode_append(1, 0, 0, 0, 0, b""),
        FrameType.APPENDED: frames.encode_appended(1, 0, 0, 0),
        FrameType.REGISTER: frames.encode_register(1, 0),
        FrameType.REGISTERED: frames.encode_registered(1, 0, 0),
        FrameType.READ: frames.encode_read(1, 0, 0, 0),
        FrameType.READ_RESULT: frames.encode_read_result(1, 0, 0, 0, []),
        FrameType.LOCATE: frames.encode_locate(1, 0, 0),
        FrameType.LOCATED: frames.encode_located(1, 0, 0, 0, 0),
        FrameType.ENTRIES: frames.encode_entries(1, 0, 0, 0, 0, []),
        FrameType.FETCHED: frames.encode_fetched(1, 0, 0, 0, []),
        FrameType.ACK: frames.encode_ack(1, 0, 0, 0, 0),
        FrameType.PROGRESS: frames.encode_progress(1, 0, 0),
        FrameType.HEARTBEAT: frames.encode_heartbeat(1, 0, 0, 0, 0, False),
    }
    for kind, buffers in made.items():
        length, number, _, _ = HEAD.unpack_from(buffers[0])
        assert (number, length) == (kind, FIXED[kind].size)


def test_a_verified_read_says_so():
    (frame,) = Decoder().feed(joined(frames.encode_read(1, 2, 3, 4, 5, verified=True)))
    assert frame.flags == frames.READ_VERIFIED
    (frame,) = Decoder().feed(joined(frames.encode_read(1, 2, 3, 4, 5, tail=True)))
    assert frame.flags == frames.READ_TAIL
    assert struct.unpack("<QQII", frame.payload) == (2, 3, 4, 5)
