"""The six cases of a sync, on real files; and what a replica says while it syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from node.by_hand import ByHand
from shardlog.protocol.failures import BelowCommit
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.protocol.messages import Kept, Refused

START_OF_EPOCH = ENTRY_HEADER_BYTES
"""What a leader writes when its epoch begins: an entry without a body."""

Story = Callable[[ByHand], Awaitable[None]]


def told(directory: Path, story: Story, names: str = "a b") -> None:
    async def run() -> None:
        cluster = ByHand(directory, names)
        async with cluster.running():
            await cluster.create_all()
            await story(cluster)

    asyncio.run(run())


async def both_hold_some(cluster: ByHand) -> None:
    await cluster.elect("a", "b")
    await cluster.append_some(20)
    await cluster.until_equal()


def test_V7_equal_logs_need_nothing(tmp_path: Path):
    async def story(cluster: ByHand) -> None:
        await both_hold_some(cluster)
        await cluster.elect("b", "a")
        await cluster.until_equal()
        assert cluster.sent_bytes("a") == START_OF_EPOCH

    told(tmp_path, story)


def test_V7_a_missing_tail_is_sent_and_nothing_else(tmp_path: Path):
    async def story(cluster: ByHand) -> None:
        await both_hold_some(cluster)
        await cluster.stop("b")
        held = cluster.replica("a").log.end
        await cluster.append_some(10, size=500)
        missing = cluster.replica("a").log.between(held, cluster.replica("a").log.end)
        await cluster.come_back("b")
        await cluster.until_equal()
        size = sum(ENTRY_HEADER_BYTES + each.body_bytes for each in missing)
        assert cluster.replica("b").transferred_bytes == size

    told(tmp_path, story)


def test_V7_a_log_that_was_trimmed_past_the_destination_is_started_over(tmp_path: Path):
    async def story(cluster: ByHand) -> None:
        await both_hold_some(cluster)
        await cluster.stop("b")
        await cluster.append_some(40, size=20_000)
        first = cluster.replica("a").log.end - 10
        cluster.trim(first)
        while cluster.replica("a").log.first != first:
            await asyncio.sleep(0.01)
        await cluster.come_back("b")
        await cluster.until_equal()
        assert cluster.replica("b").log.first == first
        assert cluster.replica("b").commit >= first

    told(tmp_path, story)


def test_V7_a_destination_that_was_trimmed_more_makes_the_source_trim(tmp_path: Path):
    async def story(cluster: ByHand) -> None:
        await both_hold_some(cluster)
        await cluster.stop("a")
        await cluster.elect("b")
        cluster.trim(15)
        while cluster.replica("b").log.first != 15:
            await asyncio.sleep(0.01)
        b = cluster.replica("b")
        kept = Kept(b.history, b.log.end, b.log.head_checksum)
        await cluster.come_back("a")
        assert cluster.replica("a").log.first == 0
        await cluster.elect("a", "b", kept=kept)
        await cluster.until_equal()
        assert cluster.replica("a").log.first == 15

    told(tmp_path, story)


def test_V7_an_empty_source_has_nothing_to_send(tmp_path: Path):
    async def story(cluster: ByHand) -> None:
        await cluster.elect("a", "b")
        await cluster.until_equal()
        assert cluster.replica("b").log.end == 1
        assert cluster.sent_bytes("b") == START_OF_EPOCH

    told(tmp_path, story)


def test_V7_a_destination_that_committed_more_is_refused(tmp_path: Path):
    async def story(cluster: ByHand) -> None:
        await both_hold_some(cluster)
        await cluster.stop("a")
        await cluster.elect("b")
        await cluster.append_some(5)
        commit = cluster.replica("b").commit
        await cluster.stop("b")
        await cluster.come_back("a")
        await cluster.elect("a")  # as nobody may: what b committed alone is not there
        await cluster.come_back("b")
        answer = await cluster.add("b")
        assert isinstance(answer, Refused)
        assert isinstance(answer.refusal, BelowCommit)
        assert cluster.replica("a").log.end < answer.refusal.commit <= commit
        assert cluster.replica("b").log.end >= commit, "nothing of it was given up"

    told(tmp_path, story)


def test_V9_a_replica_that_syncs_never_acks_and_tells_so_when_it_is_fenced(tmp_path: Path):
    async def story(cluster: ByHand) -> None:
        await both_hold_some(cluster)
        await cluster.stop("b")
        a = cluster.replica("a")
        acked = a.log.end
        await cluster.append_some(200, size=20_000)
        first = a.log.end - 150
        cluster.trim(first)
        while a.log.first != first:
            await asyncio.sleep(0.01)
        cluster.slow_down("a", 256 << 10)
        await cluster.come_back("b")
        while not (cluster.replica("b").syncing and cluster.replica("b").durable_end > first):
            await asyncio.sleep(0.01)
        assert a.lead is not None
        assert a.lead.cursors[cluster.members["b"]].acked <= acked, "it acks before it is whole"
        end = a.log.end
        await cluster.stop("a")
        answers = await cluster.fence("b")
        answer = answers["b"]
        assert answer.syncing
        assert first <= answer.end < end
        assert answer.commit >= first
        held = answer.end
        await cluster.come_back("a")
        await cluster.elect("a", "b")
        await cluster.until_equal()
        taken = cluster.replica("b").transferred_bytes
        assert cluster.replica("b").log.end > held
        whole = 150 * (20_000 + ENTRY_HEADER_BYTES) + START_OF_EPOCH
        assert taken == whole, "it started over, or something came twice"

    told(tmp_path, story)
