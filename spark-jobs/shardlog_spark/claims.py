"""Which session a partition writes under, when tasks open sessions themselves.

A task opens a session when there is none for its partition, and claims it: a record in a shard of
its own, the journal, with the partition's name as its key.  The first claim of a partition is the
one that counts, for all of its attempts, whoever made it.
"""

from __future__ import annotations

from shardlog.client import Client
from shardlog.client.failures import OffsetTrimmed
from shardlog_spark.failures import CannotWrite


async def claimed_session(client: Client, shard: str, journal: str, since: int, name: str) -> int:
    """The session of the partition `name`; its claim is behind the journal's offset `since`."""
    key = name.encode()
    session = await _first_claim(client, journal, since, key)
    if session is None:
        mine = await client.register(shard)
        async with client.producer(journal) as producer:
            await producer.append(b"%d" % mine, key)
        session = await _first_claim(client, journal, since, key)
        assert session is not None, "a claim that was appended is read"
    return session


async def _first_claim(client: Client, journal: str, since: int, key: bytes) -> int | None:
    try:
        async for record in client.read(journal, since):
            if record.key == key:
                return int(record.value)
    except OffsetTrimmed as failure:
        raise CannotWrite(
            f"claims of sessions in {journal!r} have been trimmed up to offset {failure.first}: "
            "nobody can tell what earlier attempts wrote"
        ) from failure
    return None
