"""Valid conversations, and what can be done to their bytes."""

from __future__ import annotations

from hypothesis import strategies as st
from node.bodies import body_of

from fuzz.attacked import CHANNEL, SHARD, greeting, joined
from shardlog.checksum import seal_body
from shardlog.protocol.failures import NotReady
from shardlog.protocol.messages import ClientRefused
from shardlog.transport.frame_messages import encode_refused
from shardlog.transport.frames import (
    Buffer,
    FrameType,
    encode,
    encode_ack,
    encode_append,
    encode_appended,
    encode_entries,
    encode_fetched,
    encode_heartbeat,
    encode_locate,
    encode_located,
    encode_progress,
    encode_read,
    encode_read_result,
    encode_register,
    encode_registered,
)
from shardlog.transport.handshake import (
    Attach,
    Goodbye,
    Pong,
    Reason,
    Role,
    Welcome,
    encode_attach,
    encode_attached,
    encode_goodbye,
    encode_ping,
    encode_pong,
    encode_welcome,
)

BODY = body_of(b"a record, which nodes do not look into")
NOBODYS = 1 << 60
"""A session, and an incarnation."""

ATTACH = {
    Role.CLIENT: encode_attach(CHANNEL, Attach(SHARD)),
    Role.NODE: encode_attach(CHANNEL, Attach(SHARD, "fuzz", NOBODYS, "node-1", NOBODYS)),
}
FRAMES: list[list[Buffer]] = [
    encode_ping(1),
    encode_pong(Pong(1, 1)),
    encode_goodbye(Goodbye(Reason.CLOSING, "")),
    encode_welcome(Welcome(1, "node-9", 1 << 20)),
    encode_attached(CHANNEL, NOBODYS),
    encode_refused(CHANNEL, ClientRefused(0, 1, NotReady("no"))),
    encode_register(CHANNEL, 1),
    encode_registered(CHANNEL, 1, NOBODYS),
    encode_append(CHANNEL, NOBODYS, 1, 1, seal_body(BODY), BODY),
    encode_append(CHANNEL, NOBODYS, 1, 1, 0, BODY),
    encode_appended(CHANNEL, NOBODYS, 1, 1),
    encode_read(CHANNEL, 1, 0, 10, tail=True),
    encode_read(CHANNEL, 2, 1 << 50, 10, tail=True),
    encode_read(CHANNEL, 3, 0, 10, verified=True),
    encode_read_result(CHANNEL, 1, 1, 1, [BODY]),
    encode_locate(CHANNEL, 4, 0),
    encode_located(CHANNEL, 4, 0, 0, 0),
    encode_entries(CHANNEL, 9, 0, 0, 1, [BODY]),
    encode_fetched(CHANNEL, 9, 1, 0, [BODY]),
    encode_ack(CHANNEL, 9, 9, 9, 9),
    encode_progress(CHANNEL, 9, 9),
    encode_heartbeat(CHANNEL, 9, 9, 9, 9, quorum_fresh=True),
    encode(FrameType.MESSAGE, CHANNEL, BODY),
]
"""One of each type at least, most of them out of place."""


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """A greeting, a binding, some frames, and then some bytes of it are not what they were."""
    role = draw(st.sampled_from(Role))
    parts = [greeting(role), joined(ATTACH[role])]
    parts += [joined(frame) for frame in draw(st.lists(st.sampled_from(FRAMES), max_size=6))]
    whole = bytearray(b"".join(parts))
    for _ in range(draw(st.integers(0, 4))):
        _mutate(draw, whole)
    return bytes(whole)


def _mutate(draw: st.DrawFn, whole: bytearray) -> None:
    at = draw(st.integers(0, max(0, len(whole) - 1)))
    match draw(st.sampled_from(["change", "cut", "remove", "insert", "repeat"])):
        case "change":
            whole[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        case "cut":
            del whole[at:]
        case "remove":
            del whole[at : at + draw(st.integers(1, 16))]
        case "insert":
            whole[at:at] = draw(st.binary(min_size=1, max_size=16))
        case "repeat":
            whole[at:at] = whole[at : at + draw(st.integers(1, 64))]
