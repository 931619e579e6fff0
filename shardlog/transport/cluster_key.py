"""The key of a cluster: known to its nodes and coordinators, never to a client.

A node proves with it on the data plane that it is a node, and a coordinator on the control plane
that it is one.  The key itself never travels: what does is an HMAC of the key over what it is for,
which is of no use for anything else.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets
from pathlib import Path

KEY_BYTES = 32
PROOF_BYTES = 32
HOW_TO_MAKE_ONE = "head -c 32 /dev/urandom | base64 > cluster.key; chmod 600 cluster.key"

CALLED, CALLING, CONTROL = b"data plane, called", b"data plane, calling", b"control plane"
"""What proofs are for."""


class BadClusterKey(Exception):  # noqa: N818 - named after what it is
    """No key can be had from a file; the message is one line for a person."""


class ClusterKey:
    """Makes proofs and checks them."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def read(cls, path: str) -> ClusterKey:
        """The base64 of at least 32 bytes, which only its owner and group may see."""
        try:
            with open(path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(4096)
        except OSError as failure:
            raise BadClusterKey(f"{path}: {failure.strerror}") from failure
        if mode & 0o007:
            shown = f"{mode & 0o777:04o}"
            raise BadClusterKey(f"{path}: others may use it (mode {shown}); chmod 600 {path}")
        try:
            secret = base64.b64decode(b"".join(text.split()), validate=True)
        except binascii.Error:
            secret = b""
        if len(secret) < KEY_BYTES:
            told = f"not the base64 of {KEY_BYTES} random bytes"
            raise BadClusterKey(f"{path}: {told}; make it with: {HOW_TO_MAKE_ONE}")
        return cls(secret)

    def proof(self, purpose: bytes, *parts: bytes) -> bytes:
        """That its maker has the key, for this purpose and about these parts."""
        message = b"".join(len(part).to_bytes(4, "little") + part for part in (purpose, *parts))
        return hmac.digest(self._secret, message, "sha256")

    def proves(self, proof: bytes, purpose: bytes, *parts: bytes) -> bool:
        return hmac.compare_digest(proof, self.proof(purpose, *parts))

    def call_proof(self, node: str) -> str:
        """What a call of the control plane brings along for that node, and no other."""
        return self.proof(CONTROL, node.encode()).hex()

    def proves_call(self, proof: str, node: str) -> bool:
        return hmac.compare_digest(proof.encode(), self.call_proof(node).encode())


def make_key_file(path: Path) -> None:
    """A new key for its owner alone, unless there is one; whole, whoever is killed."""
    if path.exists():
        return
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        made = os.open(beside, flags, 0o600)
        with open(made, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
