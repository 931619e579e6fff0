"""Replicas that were away, lost their disk or part of it: brought back with what they lack."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from faults.cluster import until_true
from faults.nursery import Nursery

from node.transfers import MIB, SHARD, SLOW, Transfers
from shardlog.cli.main import main
from shardlog.client.failures import DeadlineExceeded
from shardlog.protocol.failures import NoReplica

LOG_BYTES = 4 * MIB
SMALL_SEGMENTS = {"SEGMENT_BYTES_MIN": "512KiB", "SEGMENT_BYTES_MAX": "512KiB"}
HASTY_MS = 3000
NO_SCRUBBER = {"SCRUB_CORE_PERCENT": "0"}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery.open() as nursery:
        yield nursery


async def shown(cluster: Transfers, *arguments: str) -> str:
    """What a person sees."""
    command = [*arguments, "--cluster", cluster.urls[0]]
    ended = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert ended.exit_code == 0, ended.output
    return str(ended.output)


@pytest.mark.parametrize("percent", [1, 10, 50])
def test_N7_bytes_sent_are_bytes_missing(tmp_path: Path, nursery: Nursery, percent: int):
    async def story() -> None:
        async with Transfers.begun(tmp_path, nursery, {}) as cluster:
            written = await cluster.fill(LOG_BYTES * (100 - percent) // 100)
            leader, others = await cluster.roles()
            await cluster.until_equal([leader, *others])
            away = others[0]
            held = await cluster.metric(leader, "shardlog_log_bytes", shard=SHARD)
            cluster.nodes[away].kill()
            written += await cluster.fill(LOG_BYTES * percent // 100)
            whole = await cluster.metric(leader, "shardlog_log_bytes", shard=SHARD)
            sent = await cluster.metric(leader, "shardlog_entries_sent_bytes_total", follower=away)
            await cluster.revive(away)
            await cluster.until_equal([leader, *others])
            again = await cluster.metric(leader, "shardlog_entries_sent_bytes_total", follower=away)
            assert again - sent == whole - held
            assert again - sent <= whole * (percent + 1) / 100
            assert await cluster.values() == written

    asyncio.run(story())


def test_the_progress_of_a_follower_that_was_away_is_shown(tmp_path: Path, nursery: Nursery):
    async def story() -> None:
        async with Transfers.begun(tmp_path, nursery, SLOW) as cluster:
            leader, others = await cluster.roles()
            cluster.nodes[others[0]].kill()
            await cluster.fill(2 * LOG_BYTES)
            await cluster.revive(others[0])
            await cluster.until_received(others[0], MIB)
            text = await shown(cluster, "status", SHARD)
            _, _, table = text.partition("transfers")
            row = next(line for line in table.splitlines() if line.split()[:1] == [others[0]])
            _, source, at, of, percent, size, _ = row.split()
            assert source == leader
            assert 0 < int(at) < int(of)
            assert 0 <= int(percent) < 100
            assert int(size) >= MIB
            missing = await cluster.metric(others[0], "shardlog_transfer_missing_records")
            assert missing > 0
            await cluster.until_equal([leader, *others])
            assert await cluster.metric(others[0], "shardlog_transfer_missing_records") == 0
            assert "transfers" not in await shown(cluster, "status", SHARD)

    asyncio.run(story())


def test_T5_an_emptied_volume_never_votes_and_comes_back_under_a_new_incarnation(
    tmp_path: Path, nursery: Nursery
):
    async def story() -> None:
        async with Transfers.begun(tmp_path, nursery, SLOW) as cluster:
            written = await cluster.fill(LOG_BYTES)
            leader, (lost, other) = await cluster.roles()
            await cluster.until_equal([leader, lost, other])
            await until_true(lambda: is_told(cluster, lost), "it does not say that it is open")
            (opened, *_) = cluster.told(lost, "replica opened")
            for node in (lost, other):
                cluster.nodes[node].kill()
            shutil.rmtree(cluster.volume(lost))
            cluster.nodes[leader].kill()
            cluster.nodes[lost].start()
            cluster.nodes[leader].start()
            await until_true(lambda: alive(cluster, lost), "it does not come up")
            # Two of three answer, but one of them has nothing to say: nobody may be elected.
            await cluster.leave_an_election()
            await until_true(lambda: cluster.awaits(lost, other), "the election does not wait")
            epoch = (await cluster.shard(SHARD))["epoch"]
            refused = await cluster.vote(lost, opened["incarnation"], epoch)
            assert refused == NoReplica(0, opened["incarnation"])
            assert await cluster.awaits(lost, other)
            assert not list(cluster.volume(lost).glob(f"{SHARD}/*.segment"))
            await cluster.revive(other)
            await until_true(cluster.steady, "the shard is not led again")
            report = await cluster.report((await cluster.shard(SHARD))["leader"])
            assert [each for each, _ in report["history"] if each < epoch] == [1]
            await cluster.until_received(lost, MIB)
            text = await shown(cluster, "status", SHARD)
            assert f"{lost} for {lost}" in text or "JOINING" in text, text
            await until_true(lambda: cluster.ensemble_has(lost), "it is not swapped in again")
            again = cluster.told(lost, "replica opened")
            assert again[-1]["incarnation"] != opened["incarnation"]
            await cluster.until_equal([leader, lost, other])
            assert await cluster.values() == written

    async def is_told(cluster: Transfers, node: str) -> bool:
        return bool(cluster.told(node, "replica opened"))

    async def alive(cluster: Transfers, node: str) -> bool:
        found = await cluster.ask("GET", "/v1/nodes")
        return any(each["alive"] for each in found["nodes"] if each["name"] == node)

    asyncio.run(story())


def damage(segments: Path, random: Random, places: int) -> None:
    """Bytes of bodies, in files that are in use."""
    for path in sorted(segments.glob("*.segment")):
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            for _ in range(places):
                at = random.randrange(size // 2, size)
                file.seek(at)
                old = file.read(1)
                if old not in (b"", b"\0"):
                    file.seek(at)
                    file.write(bytes([old[0] ^ 0x10]))


def test_T3_reads_are_served_from_a_good_copy_or_fail_by_name(tmp_path: Path, nursery: Nursery):
    async def story() -> None:
        settings = {**SMALL_SEGMENTS, **NO_SCRUBBER}
        async with Transfers.begun(tmp_path, nursery, settings) as cluster:
            written = await cluster.fill(LOG_BYTES)
            leader, others = await cluster.roles()
            await cluster.until_equal([leader, *others])
            damage(cluster.volume(leader) / SHARD, Random(1), 2)
            assert await cluster.values() == written, "bad bytes, or none"
            assert await cluster.metric(leader, "shardlog_entries_repaired_total") > 0
            for node in others:
                cluster.nodes[node].kill()
            damage(cluster.volume(leader) / SHARD, Random(2), 2)
            got: list[bytes] = []

            async def deliver() -> None:
                async with cluster.client() as client:
                    async for record in client.tail(SHARD, deadline_ms=HASTY_MS):
                        got.append(record.value)

            with pytest.raises(DeadlineExceeded, match="being repaired"):
                await deliver()
            assert got == written[: len(got)], "what was delivered is right"

    asyncio.run(story())
