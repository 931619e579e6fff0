"""Bad input on the control plane (gRPC) and on the HTTP port of a real node."""

from __future__ import annotations

from contextlib import ExitStack

import grpc
import pytest
from cluster_keys import KEY
from faults.cluster import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st

from fuzz.attacked import Attacked
from fuzz.test_data_plane import FIXED, HALF_OPEN
from shardlog.transport.control import KEY_METADATA
from shardlog.transport.control_calls import CALLS, FETCH

PROOF = ((KEY_METADATA, KEY.call_proof("node-1")),)
"""Else no call would get any further."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes.fromhex("000000040000000000")
ENDED_WITH_ERROR = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)


@FIXED
@given(st.binary(max_size=2048), st.sampled_from([b"", PREFACE, PREFACE + SETTINGS]))
def test_garbage_for_grpc(node: Attacked, data: bytes, before: bytes):
    node.told("control", before + data)
    node.serves()


@FIXED
@given(st.sampled_from([call.path for call in CALLS.values()]), st.binary(max_size=200))
def test_calls_that_are_no_calls(node: Attacked, path: str, data: bytes):
    """Whatever the bytes happen to mean, they are for nobody here: every answer is an error."""
    with grpc.insecure_channel(node.addresses["control"]) as channel:
        invoke = channel.unary_unary(path)
        with pytest.raises(grpc.RpcError) as caught:
            invoke(data, timeout=PATIENCE_S, metadata=PROOF)
    assert caught.value.code() in ENDED_WITH_ERROR, caught.value
    node.serves()


def test_unknown_calls_too_long_ones_and_streams(node: Attacked):
    with grpc.insecure_channel(node.addresses["control"]) as channel:
        for path in ("/shardlog.v1.Control/Explode", "/nobody/Nothing"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(path)(b"", timeout=PATIENCE_S, metadata=PROOF)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        path = next(iter(CALLS.values())).path
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path)(bytes(64 << 20), timeout=PATIENCE_S, metadata=PROOF)
        assert caught.value.code() in ENDED_WITH_ERROR
        with pytest.raises(grpc.RpcError) as caught:
            list(
                channel.unary_stream(FETCH.path)(b"\xff" * 100, timeout=PATIENCE_S, metadata=PROOF)
            )
        assert caught.value.code() in ENDED_WITH_ERROR
    node.serves()


@FIXED
@given(
    st.binary(max_size=2048),
    st.sampled_from([b"", b"GET ", b"GET /metrics HTTP/1.1\r\n", b"POST /x HTTP/1.1\r\nContent-"]),
)
def test_garbage_for_http(node: Attacked, data: bytes, before: bytes):
    node.told("http", before + data)
    node.serves()


def test_requests_that_nobody_serves(node: Attacked):
    assert node.asked("/nothing") == 404
    assert node.asked("/metrics", "DELETE") == 405
    assert node.asked("/" + "x" * 100_000) >= 400
    with node.connected("http") as made:
        made.sendall(b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000 + b"\r\n\r\n")
        assert made.recv(1 << 16).startswith(b"HTTP/1.0 400 ")


@pytest.mark.parametrize("plane", ["control", "http"])
@pytest.mark.parametrize("said", [b"", PREFACE, b"GET /metrics HTTP/1.1\r\nHost: "])
def test_half_open_connections_keep_nobody_else_out(node: Attacked, plane: str, said: bytes):
    with ExitStack() as stack:
        opened = [stack.enter_context(node.connected(plane)) for _ in range(HALF_OPEN)]
        for made in opened:
            made.sendall(said)
        node.serves()
        assert node.asked("/healthz") == 200
        assert node.asked("/metrics") == 200
