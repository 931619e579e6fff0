"""gRPC's errors as failures of the metadata store: the one place that knows both.

What matters is whether a write may stand.  It may with every error that a member answers after it
has proposed the write to the others, or when no answer comes.  *That includes a store without
space*: the member that finds its quota exceeded while it applies a write answers so, and the write
stands.  Certain are only the refusals that come before: no leader, too many requests, no rights.
"""

from __future__ import annotations

import re

import grpc

from shardlog.metadata.failures import (
    DamagedStore,
    ForeignStore,
    MetadataFailure,
    NotPermitted,
    OutOfSpace,
    Unavailable,
    Unusable,
    Unwritten,
)

_CERTIFICATE_SIGNS = (
    "CERTIFICATE_VERIFY_FAILED",
    "Hostname Verification Check failed",
    "Failed to create security handshaker",
    "client certificate",
)
_CLIENT_REFUSED = "Unwrap failed"
"""All that gRPC tells of the alert by which TLS 1.3 refuses a client's certificate."""
_WORDY = re.compile(r"failed to connect to all addresses; last error: \w+: (?:ipv[46]:\S+: )?")
_BEFORE_ALL = ("etcdserver: no leader", "etcdserver: rpc not supported for learner")
"""Refusals of a member that has done nothing about a request yet."""
_DETAILS_MAX = 300


class Compacted(Exception):  # noqa: N818 - named after what happened
    """etcd has forgotten the revision that was asked for.  Does not leave this package."""


class RequestRefused(Exception):  # noqa: N818 - named after what happened
    """The request is larger than this etcd takes.  Does not leave this package."""


class LeaseGone(Exception):  # noqa: N818 - named after what happened
    """The lease has expired or was revoked; nothing was done.  Does not leave this package."""


class Reauthenticate(Exception):  # noqa: N818 - named after what happened
    """The token has expired; nothing was done.  Does not leave this package."""


def details_of(error: grpc.RpcError) -> str:
    """One line."""
    told = " ".join((error.details() or error.code().name.lower()).split())
    if told.startswith(_CLIENT_REFUSED):
        return f"wants another client certificate, or any ({told})"
    return _WORDY.sub("", told)[:_DETAILS_MAX]


def is_about_certificates(why: str) -> bool:
    return any(sign in why for sign in _CERTIFICATE_SIGNS)


def translated(where: str, error: grpc.RpcError) -> Exception:
    """What to raise instead."""
    code, details = error.code(), details_of(error)
    match code:
        case grpc.StatusCode.UNAUTHENTICATED:
            return Reauthenticate(details)
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotPermitted(where, details)
        case grpc.StatusCode.INVALID_ARGUMENT:
            return _invalid(where, details)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return _exhausted(where, details)
        case grpc.StatusCode.OUT_OF_RANGE if "revision" in details:
            return Compacted(details)
        case grpc.StatusCode.NOT_FOUND if "lease not found" in details:
            return LeaseGone(details)
        case grpc.StatusCode.DATA_LOSS:
            return DamagedStore(where, details)
        case grpc.StatusCode.UNIMPLEMENTED:
            return ForeignStore(where, f"does not speak etcd's v3 API: {details}")
        case grpc.StatusCode.FAILED_PRECONDITION if "authentication is not enabled" in details:
            return Unusable(where, details)
    if details in _BEFORE_ALL:
        return Unwritten(where, details)
    return Unavailable(where, details)


def _invalid(where: str, details: str) -> Exception:
    if "request is too large" in details:
        return RequestRefused(details)
    if "revision of auth store is old" in details:
        return Reauthenticate(details)
    if "authentication failed" in details or "user name is empty" in details:
        return NotPermitted(where, details)
    return Unusable(where, details)


def _exhausted(where: str, details: str) -> MetadataFailure:
    if "too many requests" in details:
        return Unwritten(where, details)
    if "space exceeded" in details:
        return OutOfSpace(where, f"{details}: compact, defragment, then disarm the alarm NOSPACE")
    return Unusable(where, details)
