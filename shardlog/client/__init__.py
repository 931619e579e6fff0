"""The client: appends records exactly once, reads and tails them, follows failovers by itself.

`Client` is for asyncio; `shardlog.client.blocking` has the same for scripts.
"""

from shardlog.client.client import Client
from shardlog.client.directory import Directory, Placement
from shardlog.client.failures import ClientFailure
from shardlog.client.limits import ClientLimits
from shardlog.client.producer import Producer
from shardlog.client.reading import EntryStream
from shardlog.client.records import END, FIRST, EntryBatch, Range, Record, Start, Timestamp
from shardlog.transport.compression import Compression

__all__ = [
    "END",
    "FIRST",
    "Client",
    "ClientFailure",
    "ClientLimits",
    "Compression",
    "Directory",
    "EntryBatch",
    "EntryStream",
    "Placement",
    "Producer",
    "Range",
    "Record",
    "Start",
    "Timestamp",
]
