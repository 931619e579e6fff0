"""The upkeep of a shard: for how long records are kept, and how safe each is once acknowledged.

It stands in the shard's record, and rides along when a coordinator asks a replica how it is, so
that no message of its own can be lost.  A replica that has not been told it keeps everything and
syncs everything.  `version` rises with each change: of two coordinators, one of which has not read
the record lately, the one that knows the later upkeep is heeded.
"""

from __future__ import annotations

from shardlog.protocol.value import value


@value
class Upkeep:
    """Of the oldest records whole segments go beyond either bound; 0 is none.

    `relaxed`: what a replica has written counts before it is synced.
    """

    version: int = 0
    retention_bytes: int = 0
    retention_ms: int = 0
    relaxed: bool = False

    @property
    def bounded(self) -> bool:
        return bool(self.retention_bytes or self.retention_ms)


USUAL = Upkeep()
"""Everything is kept, and synced before it is acknowledged."""
