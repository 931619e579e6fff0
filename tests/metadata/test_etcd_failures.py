"""What gRPC and etcd say, and what it means for a write."""

import grpc
import grpc.aio
import pytest

from shardlog.metadata.etcd.failures import (
    Compacted,
    LeaseGone,
    Reauthenticate,
    RequestRefused,
    is_about_certificates,
    translated,
)
from shardlog.metadata.failures import (
    DamagedStore,
    ForeignStore,
    NotPermitted,
    OutOfSpace,
    Unavailable,
    Unusable,
    Unwritten,
)


@pytest.mark.parametrize(
    ("code", "details", "meaning"),
    [
        ("UNAVAILABLE", "etcdserver: no leader", Unwritten),
        ("FAILED_PRECONDITION", "etcdserver: rpc not supported for learner", Unwritten),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Unwritten),
        # The write may stand from here on.
        ("UNAVAILABLE", "etcdserver: leader changed", Unavailable),
        ("UNAVAILABLE", "etcdserver: request timed out", Unavailable),
        (
            "UNAVAILABLE",
            "etcdserver: request timed out, possibly due to connection lost",
            Unavailable,
        ),
        ("UNAVAILABLE", "etcdserver: server stopped", Unavailable),
        ("UNAVAILABLE", "Socket closed", Unavailable),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Unavailable),
        ("CANCELLED", "", Unavailable),
        ("UNKNOWN", "", Unavailable),
        ("INTERNAL", "Received RST_STREAM with error code 2", Unavailable),
        ("FAILED_PRECONDITION", "etcdserver: not leader", Unavailable),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", OutOfSpace),
        # For the person who started it.
        ("PERMISSION_DENIED", "etcdserver: permission denied", NotPermitted),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", NotPermitted),
        ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user", NotPermitted),
        ("INVALID_ARGUMENT", "etcdserver: key is not provided", Unusable),
        ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", Unusable),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max", Unusable),
        ("UNIMPLEMENTED", "unknown service etcdserverpb.KV", ForeignStore),
        ("DATA_LOSS", "etcdserver: corrupt cluster", DamagedStore),
        # For the store itself.
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Compacted),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", RequestRefused),
        ("NOT_FOUND", "etcdserver: requested lease not found", LeaseGone),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Reauthenticate),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Reauthenticate),
    ],
)
def test_meaning(code: str, details: str, meaning: type[Exception]):
    failure = translated("etcd-0:2379", error(code, details))
    assert type(failure) is meaning
    assert (details or code.lower()) in str(failure)


def test_what_gRPC_says_of_a_connection_is_cut_to_what_matters():
    told = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:2379: refused"
    failure = translated("etcd-0:2379", error("UNAVAILABLE", told + "\n!"))
    assert str(failure) == "etcd-0:2379: refused !"
    assert len(str(translated("", error("UNKNOWN", "x" * 10_000)))) < 400


def test_certificates_are_recognised():
    told = "Unwrap failed (TSI_DATA_CORRUPTED)"
    assert is_about_certificates(str(translated("etcd-0:2379", error("UNAVAILABLE", told))))
    assert not is_about_certificates("etcd-0:2379: Socket closed")


def error(code: str, details: str) -> grpc.RpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode[code], nothing, nothing, details)
