"""TLS of both planes from the same three files.

Whoever connects to a node must trust its authority; with mutual TLS, the default, the node demands
a certificate of the same authority in return.  The files are tried out here, where what is wrong
with them can be told in one line: gRPC would take them as they are and fail every connection.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from shardlog.process.settings import BadSettings
from shardlog.transport.control import ControlTls
from shardlog_node.settings import NodeSettings


@dataclass(frozen=True, slots=True)
class NodeTls:
    """`accepting` and `calling` are for the data plane: for those who connect, and for links."""

    accepting: ssl.SSLContext
    calling: ssl.SSLContext
    control: ControlTls


def load_tls(settings: NodeSettings) -> NodeTls | None:
    """None where plain TCP was asked for; raises `BadSettings`."""
    if settings.plain:
        return None
    authority = _read("tls_authority", settings.tls_authority)
    certificate = _read("tls_certificate", settings.tls_certificate)
    key = _read("tls_key", settings.tls_key)
    calling = _believing(ssl.Purpose.SERVER_AUTH, settings)
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if settings.tls_mutual:
        accepting = _believing(ssl.Purpose.CLIENT_AUTH, settings)
        accepting.verify_mode = ssl.CERT_REQUIRED
    for context in (accepting, calling):
        try:
            context.load_cert_chain(settings.tls_certificate or "", settings.tls_key, _no_password)
        except ssl.SSLError as failure:
            named = f"{settings.tls_certificate} with {settings.tls_key}"
            raise BadSettings(f"tls_certificate: {named}: {_reason(failure)}") from failure
    return NodeTls(accepting, calling, ControlTls(authority, certificate, key, settings.tls_mutual))


def _read(setting: str, path: str | None) -> bytes:
    try:
        return Path(path or "").read_bytes()
    except OSError as failure:
        raise BadSettings(f"{setting}: {path}: {failure.strerror}") from failure


def _believing(purpose: ssl.Purpose, settings: NodeSettings) -> ssl.SSLContext:
    """In the authority's certificates and no others: from a file, since no data is everybody's."""
    try:
        return ssl.create_default_context(purpose, cafile=settings.tls_authority)
    except ssl.SSLError as failure:
        told = f"tls_authority: {settings.tls_authority}: {_reason(failure)}"
        raise BadSettings(told) from failure


def _reason(failure: ssl.SSLError) -> str:
    return failure.reason.replace("_", " ").lower() if failure.reason else "not PEM"


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal; without one it fails."""
    return ""
