"""Damage at rest is found by the scrubber and repaired from the others."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from node.cluster import Cluster
from shardlog.protocol.entry import Header
from shardlog.protocol.messages import Envelope, StatusReport, StatusRequest
from shardlog_node.host import HostedReplica
from shardlog_node.scrubbing import PIECE_ENTRIES, REST_MIN_MS, Scrubber, ScrubLimits

ASKED = StatusRequest(1)
LIMITS = ScrubLimits(core_share=0.5, bytes_per_s=1 << 30)


def damage(hosted: HostedReplica, header: Header) -> None:
    """One byte of the body."""
    place = hosted.store.files.segments.covering(header.base)
    assert place is not None
    with open(place.segment.path, "r+b") as file:
        file.seek(place.slot.after - 1)
        last = file.read(1)
        file.seek(place.slot.after - 1)
        file.write(bytes([last[0] ^ 1]))


def damage_slot(hosted: HostedReplica, header: Header) -> None:
    """One byte of the copy of its header."""
    place = hosted.store.files.segments.covering(header.base)
    assert place is not None
    at = place.segment.slot_position(place.number) + 40
    with open(place.segment.path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def damage_both(hosted: HostedReplica, header: Header) -> None:
    """Both copies of its header; where it stands is found before."""
    place = hosted.store.files.segments.covering(header.base)
    assert place is not None
    slot_at = place.segment.slot_position(place.number) + 40
    with open(place.segment.path, "r+b") as file:
        for at in (slot_at, place.slot.position + 10):
            file.seek(at)
            file.write(b"\xee\xdd")


async def entries(hosted: HostedReplica, wanted: int) -> list[Header]:
    """All entries, once they are durable here and only in the files."""
    replica = hosted.replica
    while hosted.store.durable_end < wanted or hosted.store.fresh:
        await asyncio.sleep(0.01)
    return replica.log.between(0, wanted)


@pytest.mark.parametrize("hurt", [damage, damage_slot])
@pytest.mark.parametrize("which", ["leader", "follower"])
def test_T3_damage_at_rest_is_found_and_repaired(tmp_path: Path, which: str, hurt):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            for request in range(1, 201):
                last = await cluster.append(leader, "orders", session, request)
            name = leader if which == "leader" else next(n for n in cluster.names if n != leader)
            host = cluster.nodes[name]
            hosted = host.replicas["orders"]
            headers = await entries(hosted, last + 1)
            hurt_headers = [headers[at] for at in (3, 70, 71, 150)]
            for header in hurt_headers:
                hurt(hosted, header)
            scrubber = Scrubber(host, LIMITS)
            scrubbing = asyncio.create_task(scrubber.run())
            try:
                while True:
                    state = scrubber.progress.get("orders")
                    whole = not hosted.replica.log.marks and not hosted.store.fresh
                    if state and state.found_bad + state.slots_mended >= 4 and whole:
                        break
                    await asyncio.sleep(0.01)
            finally:
                scrubbing.cancel()
            assert hosted.store.headers(0, last + 1, 1000) == headers
            again = hosted.store.scrub(0, last + 1, 1000, 1 << 20)
            assert (again.entries, again.bad, again.slotless) == (len(headers), [], [])
            asked = Envelope("orders", "a person", 0, name, hosted.replica.incarnation, ASKED)
            report = (await host.call(asked, 5000)).message
            assert isinstance(report, StatusReport)
            assert (report.bad, report.repaired) == (0, hosted.repaired)
            assert report.repaired >= len(hurt_headers)
            assert report.scrub_rounds == state.rounds

    asyncio.run(story())


def test_T3_a_stretch_of_which_nothing_is_left_is_found_in_one_round(tmp_path: Path):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            for request in range(1, 201):
                last = await cluster.append(leader, "orders", session, request)
            host = cluster.nodes[next(name for name in cluster.names if name != leader)]
            hosted = host.replicas["orders"]
            headers = await entries(hosted, last + 1)
            for header in (*headers[20:40], *headers[-20:]):
                damage_both(hosted, header)
            scrubber = Scrubber(host, LIMITS)
            scrubbing = asyncio.create_task(scrubber.run())
            try:
                while "orders" not in scrubber.progress or not scrubber.progress["orders"].rounds:
                    await asyncio.sleep(0.001)
                assert scrubber.progress["orders"].found_bad >= 20
            finally:
                scrubbing.cancel()
            while hosted.replica.log.marks or hosted.store.fresh:
                await asyncio.sleep(0.01)
            again = hosted.store.scrub(0, last + 1, 1000, 1 << 20)
            assert (again.entries, again.bad, again.slotless) == (len(headers), [], [])

    asyncio.run(story())


def zero_superblock(directory: Path) -> None:
    path = directory / "superblock"
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))


def cut_superblock_short(directory: Path) -> None:
    with (directory / "superblock").open("r+b") as file:
        file.truncate(1000)


def remove_superblock(directory: Path) -> None:
    (directory / "superblock").unlink()


def flip_superblock_copy(directory: Path) -> None:
    with (directory / "superblock").open("r+b") as file:
        file.seek(40)
        file.write(b"\xaa")


def zero_heads(directory: Path) -> None:
    for path in directory.glob("*.segment"):
        with path.open("r+b") as file:
            file.write(bytes(4096))


@pytest.mark.parametrize(
    "hurt",
    [zero_superblock, cut_superblock_short, remove_superblock, flip_superblock_copy, zero_heads],
)
def test_T4_copies_that_only_this_node_can_make_good_are_written_anew(tmp_path: Path, hurt):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            for request in range(1, 201):
                last = await cluster.append(leader, "orders", session, request)
            host = cluster.nodes[leader]
            hosted = host.replicas["orders"]
            await entries(hosted, last + 1)
            hurt(tmp_path / leader / "orders")
            assert not hosted.store.is_whole()
            scrubber = Scrubber(host, LIMITS)
            scrubbing = asyncio.create_task(scrubber.run())
            try:
                while not (hosted.store.is_whole() and hosted.store.files.copies_mended):
                    await asyncio.sleep(0.01)
            finally:
                scrubbing.cancel()
            incarnation = hosted.replica.incarnation
            await cluster.stop(leader)
            again = cluster.start(leader)
            while "orders" not in again.replicas:
                await asyncio.sleep(0.01)
            assert again.replicas["orders"].replica.incarnation == incarnation

    asyncio.run(story())


def test_a_share_of_nothing_turns_it_off(tmp_path: Path):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            leader = await cluster.create("orders")
            scrubber = Scrubber(cluster.nodes[leader], ScrubLimits(core_share=0))
            scrubbing = asyncio.create_task(scrubber.run())
            session = await cluster.session(leader, "orders")
            await cluster.append(leader, "orders", session, 1)
            assert not scrubbing.done()
            assert not scrubber.progress
            scrubbing.cancel()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("read_bytes", "cpu_s", "rest_s"),
    [
        (0, 0.01, 0.49),  # 2 % of a core
        (8 << 20, 0.0, 1.0),  # 8 MiB in a second
        (8 << 20, 0.01, 1.0),
        (1 << 20, 0.01, 0.49),
        (0, 0.0, REST_MIN_MS / 1000),
    ],
)
def test_it_rests_for_its_share_of_a_core_or_its_rate_of_bytes(read_bytes, cpu_s, rest_s):
    assert ScrubLimits().rest_s(read_bytes, cpu_s) == pytest.approx(rest_s)


@pytest.mark.parametrize("limits", [ScrubLimits(), LIMITS, ScrubLimits(1.0, 1 << 10)])
def test_neither_share_nor_rate_is_passed_over_many_pieces(limits: ScrubLimits):
    random = Random(50)
    pieces = [(random.randrange(1 << 22), random.expovariate(1000)) for _ in range(1000)]
    cpu_s = sum(cpu_s for _, cpu_s in pieces)
    passed_s = cpu_s + sum(limits.rest_s(*piece) for piece in pieces)
    assert cpu_s / passed_s <= limits.core_share
    assert sum(read for read, _ in pieces) / passed_s <= limits.bytes_per_s


@pytest.mark.parametrize("slow", [ScrubLimits(1e-9, 1 << 30), ScrubLimits(0.5, 1)])
def test_a_scrubber_that_has_used_its_share_or_rate_rests(tmp_path: Path, slow: ScrubLimits):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            for request in range(1, 2 * PIECE_ENTRIES):
                last = await cluster.append(leader, "orders", session, request)
            host = cluster.nodes[leader]
            await entries(host.replicas["orders"], last + 1)
            resting, working = Scrubber(host, slow), Scrubber(host, LIMITS)
            tasks = [asyncio.create_task(each.run()) for each in (resting, working)]
            try:
                while not all(each.progress for each in (resting, working)):
                    await asyncio.sleep(0.01)
                while working.progress["orders"].rounds < 3:
                    await asyncio.sleep(0.01)
            finally:
                for task in tasks:
                    task.cancel()
            assert resting.progress["orders"].entries == PIECE_ENTRIES
            assert working.progress["orders"].entries > 3 * PIECE_ENTRIES

    asyncio.run(story())
