"""Whoever copies a log is answered in full, and asks for more at once."""

from pathlib import Path

from client.cluster import SHARD, Story, story
from shardlog.client.limits import ClientLimits

PATIENT = ClientLimits(attempt_ms=600_000, read_bytes=4_000, long_read_bytes=12_000)


def test_after_a_quick_answer_more_is_asked_for(tmp_path: Path):
    @story(tmp_path, names="a", client_limits=PATIENT)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=1_000) as producer:
            for number in range(60):
                await producer.append(b"%04d" % number + bytes(800))
        end = await s.client.end(SHARD)
        reader = s.client.raw(SHARD)
        sizes = [
            sum(len(entry.raw) for entry in entries) async for entries in reader.entries(0, end)
        ]
        assert sizes[0] <= 4_000
        assert max(sizes[1:]) > 8_000
        assert all(size <= 12_000 for size in sizes)


def test_what_begins_at_the_end_is_not_wanted(tmp_path: Path):
    """Though it came with the same answer."""

    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=1) as producer:
            offsets = [await producer.append(b"%d" % number) for number in range(9)]
        reader = s.client.raw(SHARD)
        for end in (offsets[4], offsets[8]):
            found = [entry async for entries in reader.entries(0, end) for entry in entries]
            assert found[-1].header.end == end
