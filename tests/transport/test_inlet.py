"""Where bytes come in: whatever the pieces, the same frames as the decoder's, and no room taken
for what was only promised."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardlog.transport import frames
from shardlog.transport.failures import FrameTooLarge, MalformedFrame
from shardlog.transport.frames import HEAD_BYTES, Decoder, Frame, FrameType
from shardlog.transport.inlet import (
    READ_BYTES,
    RESERVED_AFTER_BYTES,
    RESERVED_TIMES,
    SPARE_BYTES_MAX,
    SPARES_BYTES_MAX,
    SPARES_MAX,
    Inlet,
    Spares,
)

LENGTHS = (0, 1, 300, RESERVED_AFTER_BYTES, 100_000, 3 * READ_BYTES)
REST = 1 << 20


def message(length: int, fill: int = 7) -> bytes:
    return b"".join(frames.encode(FrameType.MESSAGE, 3, bytes([fill]) * length))


def told(found: list[Frame]) -> list[tuple[int, int, int, bytes]]:
    return [(each.type, each.flags, each.channel, bytes(each.payload)) for each in found]


def put(inlet: Inlet, data: bytes) -> list[Frame]:
    """As a socket would: no more at a time than there is room for."""
    found: list[Frame] = []
    while data:
        room = inlet.room()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        found += inlet.taken(size)
        data = data[size:]
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(LENGTHS), max_size=5),
    st.lists(st.integers(1, 2 * READ_BYTES), min_size=1, max_size=6),
    st.booleans(),
)
def test_the_same_frames_whatever_the_pieces(lengths, sizes, reserves):
    data = b"".join(message(length, fill) for fill, length in enumerate(lengths))
    inlet, found, at = Inlet(REST), [], 0
    inlet.may_reserve = lambda size: reserves
    for number in range(len(data) + 1):
        if at == len(data):
            break
        size = sizes[number % len(sizes)]
        found += put(inlet, data[at : at + size])
        at = min(at + size, len(data))
    assert told(found) == told(Decoder().feed(data))
    assert inlet.waiting_bytes == 0


def test_what_came_last_does_not_change_what_came_before():
    inlet = Inlet(REST)
    first = put(inlet, message(100, 1))
    put(inlet, message(100, 2))
    assert bytes(first[0].payload) == bytes([1]) * 100


def test_a_long_frame_is_read_to_where_it_will_stand():
    inlet = Inlet(REST)
    data = message(4 * RESERVED_AFTER_BYTES)
    put(inlet, data[:RESERVED_AFTER_BYTES])
    room = inlet.room()
    assert len(room) == len(data) - RESERVED_AFTER_BYTES
    assert inlet.waiting_bytes == len(data), "all that is set aside counts"
    (frame,) = put(inlet, data[RESERVED_AFTER_BYTES:])
    assert frame.payload.obj is room.obj


def test_a_room_is_used_again_once_nobody_looks_at_its_frame():
    spares, room = Spares(), bytearray(100)
    frame = memoryview(room)[8:]
    spares.keep(room)
    assert spares.take(50) is not room
    frame.release()
    assert spares.take(300) is room
    assert len(room) == 300


@pytest.mark.parametrize("length", [RESERVED_AFTER_BYTES, 1 << 20, SPARE_BYTES_MAX])
def test_few_rooms_are_kept_and_the_latest(length: int):
    spares = Spares()
    rooms = [bytearray(length) for _ in range(2 * SPARES_MAX)]
    for room in rooms:
        spares.keep(room)
    most = min(SPARES_MAX, SPARES_BYTES_MAX // length)
    taken = [spares.take(length) for _ in range(most + 1)]
    assert all(one is other for one, other in zip(taken, rooms[-most:], strict=False))
    assert all(taken[-1] is not room for room in rooms)


def test_what_was_in_a_room_is_not_in_the_next_frame():
    inlet = Inlet(REST)
    for fill in range(8):
        length = 4 * RESERVED_AFTER_BYTES + 100 * (fill % 3)
        (frame,) = put(inlet, message(length, fill))
        assert bytes(frame.payload) == bytes([fill]) * length
        del frame


def test_a_frame_that_is_looked_at_stays_as_it_is():
    inlet = Inlet(REST)
    kept = [
        put(inlet, message(3 * READ_BYTES, fill))[0].payload[-5:] for fill in range(3 * SPARES_MAX)
    ]
    assert [bytes(each) for each in kept] == [bytes([fill]) * 5 for fill in range(len(kept))]


def test_no_room_for_much_more_than_has_come():
    inlet = Inlet(REST)
    data = message(RESERVED_TIMES * RESERVED_AFTER_BYTES)
    put(inlet, data[:RESERVED_AFTER_BYTES])
    assert len(inlet.room()) == READ_BYTES, "one byte in so many is not here yet"
    put(inlet, data[RESERVED_AFTER_BYTES : RESERVED_AFTER_BYTES + HEAD_BYTES])
    assert len(inlet.room()) == len(data) - RESERVED_AFTER_BYTES - HEAD_BYTES


def test_none_without_leave():
    inlet = Inlet(REST)
    asked: list[int] = []

    def refused(size: int) -> bool:
        asked.append(size)
        return False

    inlet.may_reserve = refused
    put(inlet, message(100_000)[:60_000])
    assert set(asked) == {100_000 + HEAD_BYTES}
    assert len(inlet.room()) == READ_BYTES
    assert inlet.waiting_bytes == 60_000


def test_what_never_comes_whole_is_forgotten():
    inlet = Inlet(REST)
    put(inlet, message(100_000)[:60_000])
    inlet.forget()
    assert inlet.waiting_bytes == 0
    assert told(put(inlet, message(5))) == told(Decoder().feed(message(5)))


def test_a_frame_over_the_limit_is_refused_before_any_room_is_made():
    inlet = Inlet(REST)
    with pytest.raises(FrameTooLarge):
        put(inlet, message(REST + 1)[:RESERVED_AFTER_BYTES])


def test_garbage_is_one_typed_failure():
    inlet = Inlet(100)
    with pytest.raises(MalformedFrame):
        put(inlet, b"\xff" * 64)
