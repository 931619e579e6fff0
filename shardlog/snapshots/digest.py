"""What a segment is called by: a digest of its bytes, so that equal segments are one object.

BLAKE3 takes a quarter of the time of SHA-256 where that has the processor's own instructions, and
less where it has not (decision 0156).  Segments of older snapshots are called by their SHA-256; a
digest of today says what it is, and theirs says nothing.
"""

from __future__ import annotations

from hashlib import sha256

from blake3 import blake3

from shardlog.checksum import Buffer

PATTERN = r"(?:blake3-)?[0-9a-f]{64}"
_BLAKE3 = "blake3"
_SHA256 = "sha256"
_PREFIX = f"{_BLAKE3}-"


class Digesting:
    """Of bytes that come part by part; one thread at a time."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made = blake3()

    def update(self, part: Buffer) -> None:
        self._made.update(part)

    def digest(self) -> str:
        return _PREFIX + self._made.hexdigest()


def digest_of(data: Buffer) -> str:
    made = Digesting()
    made.update(data)
    return made.digest()


def is_digest_of(digest: str, data: Buffer) -> bool:
    if digest.startswith(_PREFIX):
        return digest == digest_of(data)
    return digest == sha256(data).hexdigest()


def field_of(digest: str) -> tuple[str, str]:
    """Its name and its value in a manifest."""
    if digest.startswith(_PREFIX):
        return _BLAKE3, digest.removeprefix(_PREFIX)
    return _SHA256, digest


def digest_in(fields: dict[str, object]) -> str:
    """The digest that the fields of a segment tell."""
    found = fields[_BLAKE3 if _BLAKE3 in fields else _SHA256]
    if not isinstance(found, str):
        raise TypeError(f"{found!r:.40} stands where a digest is due")
    return _PREFIX + found if _BLAKE3 in fields else found
