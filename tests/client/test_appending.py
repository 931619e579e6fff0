"""Appending and reading back, against real nodes."""

from pathlib import Path

from client.cluster import SHARD, Story, story


def test_appended_and_read_back(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            offset = await producer.append(b"one", b"key", headers=[("h", b"x")])
            futures = [producer.send(b"%d" % n) for n in range(100)]
            offsets = [await future for future in futures]
        assert offsets == list(range(offset + 1, offset + 101))
        records = [record async for record in s.client.read(SHARD)]
        assert [record.offset for record in records] == [offset, *offsets]
        assert records[0].key == b"key"
        assert records[0].headers == (("h", b"x"),)
        assert [record.value for record in records[1:]] == [b"%d" % n for n in range(100)]
        assert await s.client.end(SHARD) == offset + 101
