"""What the tasks of one write share: where it began, and its sessions.

A session is opened with a nonce, and a leader gives the same session for the same nonce as long as
it keeps it.  So all attempts of a partition get one session by a nonce that is made of the write's
name and the partition, and nobody has to tell them.

A leader keeps so many sessions, and forgets the one that was used longest ago.  The marker is a
session that is opened before all others of the write, and never used: as long as it is kept, none
of the others was forgotten.  An attempt that finds it forgotten has to read what the log has.

A write with a name is the same one when it is begun again, by another driver: the journal, a shard
of its own, has for each name where the write began first, and its marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from shardlog.client import Client

NONCE_MIN = 1 << 62
"""As all nonces of registrations: calls have lower ones."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """`since` is an offset before all entries of the write, `marker` the session opened first."""

    name: str
    since: int
    marker: int

    def nonce(self, partition: int) -> int:
        return _nonce(f"{self.name}/{partition}")

    async def is_whole(self, client: Client, shard: str) -> bool:
        """Whether no session that was opened before this call has been forgotten."""
        return await client.register(shard, nonce=_nonce(self.name)) == self.marker


async def begun(client: Client, shard: str, name: str) -> WriteJob:
    since = await client.end(shard)
    return WriteJob(name, since, await client.register(shard, nonce=_nonce(name)))


async def begun_or_claimed(client: Client, shard: str, journal: str, name: str) -> WriteJob:
    """As the first one who began it, by the journal; nobody writes before that is known."""
    key = f"{shard}/{name}".encode()
    found = await _first_claim(client, journal, key)
    if found is None:
        mine = await begun(client, shard, name)
        async with client.producer(journal) as producer:
            await producer.append(b"%d %d" % (mine.since, mine.marker), key)
        found = await _first_claim(client, journal, key)
        assert found is not None, "a claim that was appended is read"
    since, marker = map(int, found.split())
    return WriteJob(name, since, marker)


async def _first_claim(client: Client, journal: str, key: bytes) -> bytes | None:
    async for record in client.read(journal, from_first_kept=True):
        if record.key == key:
            return record.value
    return None


def _nonce(name: str) -> int:
    digest = blake2b(name.encode(), digest_size=8).digest()
    return NONCE_MIN | int.from_bytes(digest) & NONCE_MIN - 1
