"""The calls of etcd's v3 API that Shardlog makes.

Paths are etcd's, messages our own selection of its fields (`proto/etcd.proto`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shardlog.metadata.generated import etcd_pb2 as pb
from shardlog.metadata.store import AFTER_PRINTABLE


class Method(NamedTuple):
    path: str
    request: type[Any]
    response: type[Any]


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE = Method(
    "/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse
)
LEASE_KEEP_ALIVE = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
AUTHENTICATE = Method(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse
)
STATUS = Method("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse)


def end_of(prefix: bytes) -> bytes:
    """`range_end` for the keys that begin with `prefix`."""
    return prefix + AFTER_PRINTABLE.encode()


def swap_request(key: bytes, version: int, value: bytes | None, lease: int = 0) -> Any:
    """Write if the key's version is this one, else tell what stands there: one transaction."""
    if value is None:
        write = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
    else:
        write = pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))
    return pb.TxnRequest(
        compare=[
            pb.Compare(
                result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=key, mod_revision=version
            )
        ],
        success=[write],
        failure=[pb.RequestOp(request_range=pb.RangeRequest(key=key))],
    )


def watch_request(prefix: bytes, from_revision: int) -> Any:
    return pb.WatchRequest(
        create_request=pb.WatchCreateRequest(
            key=prefix,
            range_end=end_of(prefix),
            start_revision=from_revision,
            progress_notify=True,
            fragment=True,
        )
    )
