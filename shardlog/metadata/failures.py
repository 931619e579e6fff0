"""Everything that can be wrong with the metadata store, by type.

Blame is in the type: `Unavailable` goes away by itself (but for `OutOfSpace`), `BadRecord` is about
one key, `Unusable` is for the person who started the process, the others are for the programmer.
"""

from __future__ import annotations


class MetadataFailure(Exception):  # noqa: N818 - named after what happened
    """The base of all; the message is one line for a person."""


class Unavailable(MetadataFailure):
    """No answer.  A read may be repeated; **a write may or may not have happened**, now or later.

    Whoever wrote has to read the key again before it acts on either.
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class Unwritten(Unavailable):
    """No answer, and it is certain that nothing was written."""


class OutOfSpace(Unavailable):
    """No room, until a person makes some; reads go on.  A write may have happened all the same."""


class Closed(MetadataFailure):
    """The handle was closed, before the call or while it waited."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where}: closed")
        self.where = where


# --- one key -----------------------------------------------------------------------------------


class BadRecord(MetadataFailure):
    """The value of `key` is no record: `field` is the first that is wrong, "" if it is no JSON."""

    def __init__(self, key: str, field: str, why: str) -> None:
        super().__init__(f"{key}: {field}: {why}" if field else f"{key}: {why}")
        self.key = key
        self.field = field
        self.why = why


class NewerRecord(BadRecord):
    """Written by a newer Shardlog in a format that this one must not touch."""

    def __init__(self, key: str, found: int, known: int) -> None:
        super().__init__(key, "format", f"{found} is newer than {known}; upgrade Shardlog")
        self.found = found


class BadKey(MetadataFailure):
    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"key {key!r:.80}: {why}")
        self.key = key


class TooLarge(MetadataFailure):
    """`bytes_max` is None if a store refuses it that does not tell its limit."""

    def __init__(self, key: str, found_bytes: int, bytes_max: int | None) -> None:
        limit = "the store takes less" if bytes_max is None else f"at most {bytes_max} are allowed"
        super().__init__(f"{key}: a value of {found_bytes} bytes; {limit}")
        self.key = key
        self.found_bytes = found_bytes


# --- the whole store ---------------------------------------------------------------------------


class Unusable(MetadataFailure):
    """The store cannot be used as it is; trying again does not help."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class CannotOpen(Unusable):
    """Not there, not permitted, or a place that cannot hold a store."""


class NotPermitted(Unusable):
    """The store knows nobody by these credentials, or they lack a right."""


class ReadOnlyStore(Unusable):
    """Every coordinator writes, so a store that cannot be written is of no use."""


class ForeignStore(Unusable):
    """Something else than a Shardlog metadata store."""


class NewerStore(Unusable):
    """Laid out by a newer Shardlog."""


class DamagedStore(Unusable):
    """What was written has changed."""
