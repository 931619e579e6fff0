"""The key of a cluster: its file, what it proves, and greetings between nodes (S-03)."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from cluster_keys import KEY, OTHER_KEY, key_file

from shardlog.transport import handshake
from shardlog.transport.cluster_key import (
    CALLED,
    CALLING,
    BadClusterKey,
    ClusterKey,
    make_key_file,
)
from shardlog.transport.connection import Connection, ConnectionLimits
from shardlog.transport.endpoints import Inbox, Listener, connect, listen
from shardlog.transport.failures import NotPermitted
from shardlog.transport.frames import Buffer, Decoder, Frame, FrameType
from shardlog.transport.handshake import Attach, Hello, Role
from transport.ends import Recorder, wall_ns

NONCE = bytes(32)
GARBAGE = b"\x01" * 32


# --- the file --------------------------------------------------------------------------------


def test_a_key_that_was_made_is_read_and_kept(tmp_path: Path):
    path = tmp_path / "cluster.key"
    make_key_file(path)
    text = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    make_key_file(path)
    assert path.read_bytes() == text
    assert os.listdir(tmp_path) == ["cluster.key"]
    key = ClusterKey.read(str(path))
    assert not KEY.proves(key.proof(CALLED), CALLED)


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_its_owner_and_group_may_read_it(tmp_path: Path, mode: int):
    path = key_file(tmp_path)
    os.chmod(path, mode)
    assert ClusterKey.read(path).proof(CALLED) == KEY.proof(CALLED)


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o604])
def test_one_that_others_may_use_is_refused(tmp_path: Path, mode: int):
    path = key_file(tmp_path)
    os.chmod(path, mode)
    with pytest.raises(BadClusterKey, match=f"others may use it .mode {mode:04o}.; chmod 600"):
        ClusterKey.read(path)


@pytest.mark.parametrize("content", [b"", b"short", b"AAAA" * 5, b"\xff" * 64, b"!" * 44])
def test_what_is_no_key_is_refused_with_a_way_to_make_one(tmp_path: Path, content: bytes):
    path = tmp_path / "cluster.key"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(BadClusterKey, match="head -c 32 /dev/urandom") as failure:
        ClusterKey.read(str(path))
    assert "\n" not in str(failure.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(BadClusterKey, match="No such file"):
        ClusterKey.read(str(tmp_path / "none"))


# --- proofs ----------------------------------------------------------------------------------


def test_a_proof_is_of_one_key_for_one_purpose_about_one_thing():
    proof = KEY.proof(CALLED, b"a", b"bc")
    assert KEY.proves(proof, CALLED, b"a", b"bc")
    assert not KEY.proves(proof, CALLING, b"a", b"bc")
    assert not KEY.proves(proof, CALLED, b"ab", b"c")
    assert not OTHER_KEY.proves(proof, CALLED, b"a", b"bc")
    assert KEY.proves_call(KEY.call_proof("node-1"), "node-1")
    assert not KEY.proves_call(KEY.call_proof("node-2"), "node-1")
    assert not KEY.proves_call("ü", "node-1")


# --- greetings -------------------------------------------------------------------------------


async def answers(address: tuple[str, int], *frames: list[Buffer]) -> list[Frame]:
    """To somebody who says one after the other, each when there was an answer, until the end."""
    reader, writer = await asyncio.open_connection(*address)
    decoder, found = Decoder(), list[Frame]()
    with suppress(ConnectionError):
        for frame in frames:
            writer.writelines(frame)
            found += decoder.feed(await reader.read(1 << 16))
        while data := await reader.read(1 << 16):
            found += decoder.feed(data)
    writer.close()
    return found


@asynccontextmanager
async def listening(host: Recorder, key: ClusterKey | None = KEY) -> AsyncIterator[Listener]:
    listener = await listen(
        "127.0.0.1",
        0,
        name="node-1",
        receiver=lambda: host,
        limits=ConnectionLimits(),
        wall_ns=wall_ns,
        key=key,
    )
    try:
        yield listener
    finally:
        await listener.close()


def greeting() -> list[Buffer]:
    return handshake.encode_hello(Hello(Role.NODE, "node-2", 1 << 20, nonce=NONCE))


ATTACH = handshake.encode_attach(1, Attach("orders", "node-2", 1, "node-1", 1))
ATTACKS: dict[str, list[list[Buffer]]] = {
    "a node of before": [
        handshake.encode_hello(Hello(Role.NODE, "node-2", 1 << 20)),
    ],
    "no proof": [greeting(), ATTACH],
    "a wrong proof": [greeting(), handshake.encode_proof(GARBAGE)],
    "the proof of another key": [
        greeting(),
        handshake.encode_proof(OTHER_KEY.proof(CALLING, b"node-2", b"node-1", NONCE, GARBAGE)),
    ],
    "a proof of another connection": [
        greeting(),
        handshake.encode_proof(KEY.proof(CALLING, b"node-2", b"node-1", NONCE, GARBAGE)),
    ],
    "a long frame in place of a proof": [
        greeting(),
        [(1 << 20).to_bytes(4, "little") + bytes([FrameType.APPEND, 0, 1, 0]), bytes(60_000)],
    ],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_S03_who_does_not_prove_it_is_no_node(run, attack: str):
    async def story():
        host = Recorder()
        async with listening(host) as listener:
            *_, last = await answers(listener.address, *ATTACKS[attack])
            assert last.type == FrameType.GOODBYE
            while listener.connections:
                await asyncio.sleep(0)
            assert not host.connections
            assert listener.refused == 1
            assert listener.refused_last.startswith("127.0.0.1:")

    run(story())


def test_S03_what_a_server_proves_is_no_proof_of_a_caller(run):
    async def story():
        host = Recorder()
        async with listening(host) as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            writer.writelines(greeting())
            (frame,) = Decoder().feed(await reader.read(1 << 16))
            welcome = handshake.decode_welcome(frame, Role.NODE)
            assert KEY.proves(welcome.proof, CALLED, b"node-2", b"node-1", NONCE, welcome.nonce)
            writer.writelines(handshake.encode_proof(welcome.proof))
            (goodbye,) = Decoder().feed(await reader.read(1 << 16))
            assert goodbye.type == FrameType.GOODBYE
            writer.close()
            assert not host.connections

    run(story())


async def called(listener: Listener, key: ClusterKey | None) -> Connection:
    host, port = listener.address
    return await connect(
        host,
        port,
        name="node-2",
        role=Role.NODE,
        receiver=Inbox(),
        limits=ConnectionLimits(),
        wall_ns=wall_ns,
        timeout_ms=5000,
        key=key,
    )


def test_S03_nodes_of_one_cluster_greet_each_other(run):
    async def story():
        host = Recorder()
        async with listening(host) as listener:
            connection = await called(listener, KEY)
            assert connection.name == "node-1"
            connection.send(handshake.encode_attach(1, Attach("orders")))
            assert (await host.next()).type == FrameType.ATTACH
            (accepted,) = host.connections
            assert accepted.name == "node-2"
            connection.close()
            await connection.closed()

    run(story())


@pytest.mark.parametrize("theirs", [OTHER_KEY, None], ids=["another key", "no key"])
def test_S03_a_server_that_does_not_prove_it_is_told_nothing(run, theirs: ClusterKey | None):
    async def story():
        host = Recorder()
        async with listening(host, theirs) as listener:
            with pytest.raises(NotPermitted):
                await called(listener, KEY)
            assert not host.connections

    run(story())


def test_S03_clients_neither_prove_nor_see_a_proof(run):
    async def story():
        async with listening(Recorder()) as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            writer.writelines(handshake.encode_hello(Hello(Role.CLIENT, "me", 1 << 20)))
            (frame,) = Decoder().feed(await reader.read(1 << 16))
            welcome = handshake.decode_welcome(frame, Role.CLIENT)
            assert (welcome.name, welcome.nonce, welcome.proof) == ("node-1", b"", b"")
            writer.close()

    run(story())
