"""Raw entries: headers and bodies, one behind the other, as they stand in a segment.

Whether they are intact is not asked here: a replica verifies what it stores and a client what it
delivers, each with checksums of its own choosing.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardlog.protocol.entry import Entry, EntryRun, Header, entry_of
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES, pack_header, unpack_header
from shardlog.transport.failures import MalformedFrame
from shardlog.transport.frames import Buffer


def split_entries(raw: memoryview) -> list[tuple[Header, memoryview]]:
    """Headers, not verified, and views of their bodies."""
    found: list[tuple[Header, memoryview]] = []
    at, end = 0, len(raw)
    while at < end:
        known = unpack_header(raw, at)
        if known is None:
            raise MalformedFrame(f"no entry header at byte {at} of {end}")
        header, length = known
        start = at + ENTRY_HEADER_BYTES
        at = start + length
        if at > end:
            raise MalformedFrame(f"the entry {header.id} lacks {at - end} bytes")
        found.append((header, raw[start:at]))
    return found


def fills(view: memoryview) -> bool:
    """Whether it is seven eighths of what it keeps alive, or more."""
    return 8 * len(view) >= 7 * memoryview(view.obj).nbytes


def whole_entries(raw: memoryview, count: int) -> tuple[Entry, ...]:
    """The `count` entries.

    They are views of what came, if they are nearly all of it: they keep it alive.
    """
    found = split_entries(raw)
    if len(found) != count:
        raise MalformedFrame(f"{len(found)} entries where {count} are announced")
    if not fills(raw):
        return tuple([entry_of((header, bytes(body))) for header, body in found])
    run = EntryRun(map(entry_of, found))
    run.raw = raw
    return run


def join_entries(entries: Iterable[Entry]) -> list[Buffer]:
    """Buffers for `writelines`; bodies are not copied."""
    if isinstance(entries, EntryRun):
        return [entries.raw]
    buffers: list[Buffer] = []
    for entry in entries:
        buffers += (pack_header(entry.header, len(entry.body)), entry.body)
    return buffers
