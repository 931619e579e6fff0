"""What comes from outside is verified once, before a replica sees it.

The machines compare checksums and chain them, but never compute one over bytes: an entry that was
damaged on its way would be stored, and acknowledged, as it came.
"""

from __future__ import annotations

from shardlog.checksum import is_body, is_sealed, seal_body
from shardlog.protocol.entry import Entry
from shardlog.protocol.messages import Append, Entries, Fetched, Message


def is_intact(message: Message) -> bool:
    """Whether the bodies and headers in a message are as they were made."""
    if isinstance(message, Append):
        return seal_body(message.body) == message.body_checksum
    if isinstance(message, Entries | Fetched):
        return all(map(is_whole, message.entries))
    return True


def is_whole(entry: Entry) -> bool:
    """Whether its header and its body are as they were made."""
    header, body = entry
    return is_sealed(header) and is_body(header, body)
