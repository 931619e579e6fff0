"""Files that cannot be opened any more are a lost disk: no vote, and another one in its place."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from node.cluster import Cluster
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import NoReplica
from shardlog.protocol.messages import Envelope, Fence, Read, ReadResult, Refused, StatusRequest
from shardlog.storage.failures import DiskFailed
from shardlog.storage.real_files import RealFile, RealFiles

APPENDS = 300


def superblock_zeroed(directory: Path) -> None:
    path = directory / "superblock"
    path.write_bytes(bytes(path.stat().st_size))


def newest_copies_lost(directory: Path) -> None:
    """Those of the newest root, or the older ones: either way nobody knows which was newest."""
    path = directory / "superblock"
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size // 2))


def head_zeroed(directory: Path) -> None:
    """One sector, with both copies in it."""
    with sorted(directory.glob("*.segment"))[0].open("r+b") as file:
        file.write(bytes(4096))


def segment_removed(directory: Path) -> None:
    sorted(directory.glob("*.segment"))[0].unlink()


def segment_cut_short(directory: Path) -> None:
    with sorted(directory.glob("*.segment"))[-1].open("r+b") as file:
        file.truncate(5000)


def everything_removed(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


@pytest.mark.parametrize(
    "lose",
    [
        superblock_zeroed,
        newest_copies_lost,
        head_zeroed,
        segment_removed,
        segment_cut_short,
        everything_removed,
    ],
)
@pytest.mark.parametrize("which", ["leader", "follower"])
def test_T5_lost_files_are_a_lost_disk_and_swapped_for_new_ones(
    tmp_path: Path, which: str, lose: Callable[[Path], None]
):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            bases = [
                await cluster.append(leader, "orders", session, request)
                for request in range(1, APPENDS + 1)
            ]
            name = leader if which == "leader" else next(n for n in cluster.names if n != leader)
            (old,) = [
                each for each in cluster.coordinator.shards["orders"].ensemble if each.node == name
            ]
            await cluster.stop(name)
            lose(tmp_path / name / "orders")
            cluster.start(name)
            found = await cluster.until(
                "orders", lambda it: is_swapped(it.ensemble, old) and not it.change
            )
            assert {each.node for each in found.ensemble} == {*cluster.names}
            for other in cluster.names:
                if other != name:
                    await cluster.stop(other)
                    break
            assert name in cluster.nodes
            leader = await cluster.leader("orders", other_than=other)
            bases.append(await cluster.append(leader, "orders", session, APPENDS + 1))
            seen: list[int] = []
            while len(seen) < len(bases):
                start = seen[-1] + 1 if seen else bases[0]
                result = await cluster.ask(leader, "orders", Read(2, start, 200))
                assert isinstance(result, ReadResult)
                seen += [entry.header.base for entry in result.entries]
            assert seen == bases

    asyncio.run(story())


def is_swapped(ensemble: tuple[Member, ...], old: Member) -> bool:
    return old not in ensemble and any(each.node == old.node for each in ensemble)


def test_T5_lost_files_never_vote(tmp_path: Path):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            await cluster.create("orders")
            incarnation = cluster.nodes["a"].replicas["orders"].replica.incarnation
            await cluster.stop("a")
            superblock_zeroed(tmp_path / "a" / "orders")
            host = cluster.start("a")
            while "orders" not in host.failed:
                await asyncio.sleep(0.01)
            for message in (Fence(9), StatusRequest(9)):
                asked = Envelope("orders", "operator", 0, "a", incarnation, message)
                answer = (await host.call(asked, 1000)).message
                assert isinstance(answer, Refused)
                assert answer.refusal == NoReplica(0, incarnation)
            assert "orders" in host.failed
            assert "orders" not in host.replicas

    asyncio.run(story())


class Unreadable(RealFiles):
    """Files that cannot be opened for a while."""

    unreadable = True

    def open(self, path: str, *, write: bool = True) -> RealFile:
        if self.unreadable and path.endswith("superblock"):
            raise DiskFailed(path, "input/output error")
        return super().open(path, write=write)


def test_T5_a_disk_that_fails_for_a_while_is_not_lost(tmp_path: Path):
    files = Unreadable()

    async def story() -> None:
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            await cluster.create("orders")
            incarnation = cluster.nodes["a"].replicas["orders"].replica.incarnation
            await cluster.stop("a")
            host = cluster.start("a", files)
            while "orders" not in host.failed:
                await asyncio.sleep(0.01)
            asked = Envelope("orders", "operator", 0, "a", incarnation, StatusRequest(9))
            with pytest.raises(TimeoutError):
                await host.call(asked, 100)
            files.unreadable = False
            while "orders" not in host.replicas:
                await asyncio.sleep(0.01)
            assert host.replicas["orders"].replica.incarnation == incarnation

    asyncio.run(story())
