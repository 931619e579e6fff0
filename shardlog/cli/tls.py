"""Certificates for commands, from the environment.

They are the same for every command that is typed in a place, and a Pod gets them from a Secret, so
there are variables for them and no options.
"""

from __future__ import annotations

import os
import ssl

from shardlog.cli.failures import BadUsage

AUTHORITY_VARIABLE = "SHARDLOG_TLS_AUTHORITY"
CERTIFICATE_VARIABLE = "SHARDLOG_TLS_CERTIFICATE"
KEY_VARIABLE = "SHARDLOG_TLS_KEY"


def tls_of_environment() -> ssl.SSLContext | None:
    """None if nothing is said of an authority: connections to nodes are plain then."""
    authority = os.environ.get(AUTHORITY_VARIABLE)
    certificate = os.environ.get(CERTIFICATE_VARIABLE)
    key = os.environ.get(KEY_VARIABLE)
    if not authority:
        if certificate or key:
            raise BadUsage(f"{AUTHORITY_VARIABLE}: needed with the certificate and its key")
        return None
    if bool(certificate) != bool(key):
        raise BadUsage(f"{CERTIFICATE_VARIABLE} and {KEY_VARIABLE} go together")
    named = authority
    try:
        tls = ssl.create_default_context(cafile=authority)
        if certificate:
            named = f"{certificate} with {key}"
            tls.load_cert_chain(certificate, key, lambda: "")
    except ssl.SSLError as failure:
        reason = failure.reason.replace("_", " ").lower() if failure.reason else "not PEM"
        raise BadUsage(f"{named}: {reason}") from failure
    except OSError as failure:
        raise BadUsage(f"{named}: {failure.strerror}") from failure
    return tls
