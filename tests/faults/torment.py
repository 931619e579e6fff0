"""Damage under load: a seed chooses whom, when and in which way; the atlas, how much.

A node is stopped (SIGSTOP) for the moment in which its files are looked at and struck, so that what
was hit is known for certain; or it is killed, struck while it is down, and started again.  A fault
counts if it changed bytes that belong to the replica's live data.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from random import Random

from faults import damage
from faults.atlas import Atlas
from faults.cluster import FaultCluster, until_true
from faults.damage import Blow, OldSectors, Way
from faults.live_files import LiveFiles, live_files
from faults.ordeal import SHARD, Ordeal

TRIES = 12
PAUSE_MS_MAX = 5000
SOON_MS = 400
PLAIN = ["body bytes", "header bytes", "slot bytes"]
"""Ways that need but one good copy elsewhere."""
BETWEEN_MAX = 60
"""Records that are acknowledged between two faults, at most."""

SETTINGS = {
    "SEGMENT_BYTES_MIN": "128KiB",
    "SEGMENT_BYTES_MAX": "1MiB",
    "SCRUB_CORE_PERCENT": "25",
    "SCRUB_BYTES_PER_S": "64MiB",
}
"""Many segments, and a scrubber that comes round within seconds."""

Episode = Callable[["Torment"], Awaitable[None]]


class Torment:
    """`faults` counts what changed bytes or lost files, by kind; `told` has a line for each."""

    def __init__(self, ordeal: Ordeal, told: Callable[[str], None]) -> None:
        self.ordeal = ordeal
        self.cluster: FaultCluster = ordeal.cluster
        self.random: Random = ordeal.random
        self.told = told
        self.faults: Counter[str] = Counter()
        self.besides: Counter[str] = Counter()
        self.incarnations: set[tuple[str, int]] = set()
        self._old = OldSectors()
        self.ways: dict[str, Way] = {
            "body bytes": damage.body,
            "header bytes": damage.header,
            "slot bytes": damage.slot,
            "slot and header": damage.slot_and_header,
            "slots and headers in a row": damage.stretch,
            "segment head copy": damage.segment_head,
            "superblock copy": damage.superblock_copy,
            "zeroed sector of entries": damage.zeroed_sector,
            "zeroed sector of slots": damage.zeroed_slots,
            "misplaced sector": damage.misplaced_sector,
            "stale sector": self._old.stale,
        }

    @cached_property
    def atlas(self) -> Atlas:
        """Every node is a member, and a quorum is a majority."""
        members = {node: self.cluster.volume(node) for node in self.cluster.nodes}
        return Atlas(members, len(members) // 2 + 1)

    @property
    def total(self) -> int:
        return self.faults.total()

    async def run(self, enough: Callable[[], bool]) -> None:
        """Episode after episode; every kind comes before any comes again."""
        episodes: list[Episode] = []
        while not enough():
            if not episodes:
                episodes = [*EPISODES]
                self.random.shuffle(episodes)
            await episodes.pop()(self)
            await self.ordeal.load.until_more(self.random.randint(1, BETWEEN_MAX))

    # --- striking --------------------------------------------------------------------------------

    def strike(self, node: str, when: str, ways: list[str] | None = None) -> bool:
        """In some way that does harm and that the atlas permits; the node's files stand still."""
        names = list(ways or self.ways)
        with live_files(self.cluster.volume(node)) as files:
            if files is None:
                return False
            self.incarnations.add((node, files.incarnation))
            for _ in range(TRIES):
                kind = self.random.choice(names)
                if self._try(node, files, kind, when):
                    self._old.keep(files)
                    return True
        return False

    def _try(self, node: str, files: LiveFiles, kind: str, when: str) -> bool:
        blows = self.ways[kind](files, self.random)
        if not blows or not all(blow.changes for blow in blows):
            return False
        if not self.atlas.permits(node, files, blows):
            return False
        self.inflict(node, f"{kind}, {when}", blows)
        return True

    def inflict(self, node: str, kind: str, blows: list[Blow]) -> None:
        for blow in blows:
            blow.strike()
        self.count(node, kind, "; ".join(map(str, blows)))

    def count(self, node: str, kind: str, what: str) -> None:
        self.faults[kind] += 1
        self.told(f"fault {self.total}: {kind}, {node}: {what}")

    async def until_whole(self, node: str) -> int:
        """Until nothing is wrong with anybody but `node`: where the log ends then."""
        ends: list[int] = []

        async def others_whole() -> bool:
            found = await self.cluster.status(SHARD)
            if found is None or found["status"] != "STEADY" or found["reconfiguration"]:
                return False
            ends[:] = [max(report["commit"] for report in found["reports"])]
            return await asyncio.to_thread(self.atlas.others_whole, node, ends[0])

        await until_true(others_whole, f"the others of {node} do not become whole")
        return ends[0]

    async def until_back(self, node: str, before: int) -> None:
        """Until it is a member under another incarnation."""

        async def back() -> bool:
            found = await self.cluster.status(SHARD)
            if found is None or found["status"] != "STEADY" or found["reconfiguration"]:
                return False
            with live_files(self.cluster.volume(node)) as files:
                known = files is not None and files.incarnation != before
            roles = {report["node"]: report["role"] for report in found["reports"]}
            return known and roles.get(node) in ("FOLLOWER", "LEADER")

        await until_true(back, f"{node} is not swapped in again")
        self.incarnations.add((node, self.incarnation(node)))

    def incarnation(self, node: str) -> int:
        with live_files(self.cluster.volume(node)) as files:
            return 0 if files is None else files.incarnation

    async def someone(self) -> str:
        """The leader as often as all others together."""
        if self.random.random() < 0.5:
            return await self.ordeal.leader()
        return self.random.choice(await self.ordeal.followers())


# --- episodes ------------------------------------------------------------------------------------


async def one_live(t: Torment) -> None:
    _strike_live(t, await t.someone())


async def several_live(t: Torment) -> None:
    """Several nodes at once, none of them the only one with a good copy."""
    for node in t.random.sample(list(t.cluster.nodes), len(t.cluster.nodes)):
        for _ in range(t.random.randint(1, 2)):
            _strike_live(t, node)


def _strike_live(t: Torment, node: str, ways: list[str] | None = None) -> None:
    process = t.cluster.nodes[node]
    process.freeze()
    try:
        t.strike(node, "live", ways)
    finally:
        process.resume()


async def one_down(t: Torment) -> None:
    await _strike_down(t, [await t.someone()])


async def several_down(t: Torment) -> None:
    """All of them killed, and struck before they are back."""
    await _strike_down(t, list(t.cluster.nodes))


async def _strike_down(t: Torment, nodes: list[str]) -> None:
    processes = [t.cluster.nodes[node] for node in nodes]
    for process in processes:
        process.kill()
        t.besides["kill -9"] += 1
    for node in nodes:
        for _ in range(t.random.randint(1, 3)):
            t.strike(node, "down")
    for process in processes:
        process.start()
    await t.ordeal.outage(f"{len(nodes)} killed and damaged")


async def leader_killed(t: Torment) -> None:
    """Its successors may have been struck a moment ago."""
    leader = await t.ordeal.leader()
    for node in await t.ordeal.followers():
        _strike_live(t, node)
    t.cluster.nodes[leader].kill()
    t.besides["kill -9"] += 1
    t.cluster.nodes[leader].start()
    await t.ordeal.outage("leader killed after damage")


async def struck_and_killed(t: Torment) -> None:
    """So soon after that the damage may be found, but is hardly repaired."""
    node = await t.someone()
    process = t.cluster.nodes[node]
    for _ in range(t.random.randint(1, 4)):
        _strike_live(t, node)
    await asyncio.sleep(t.random.random() * SOON_MS / 1000)
    process.kill()
    t.besides["kill -9"] += 1
    process.start()
    await t.ordeal.outage("killed soon after damage")


async def coordinator_killed(t: Torment) -> None:
    """And the leader with it."""
    _strike_live(t, await t.someone())
    victims = [*t.cluster.coordinators.values(), t.cluster.nodes[await t.ordeal.leader()]]
    for victim in victims:
        victim.kill()
        t.besides["kill -9"] += 1
    for victim in victims:
        victim.start()
    await t.ordeal.outage("leader and coordinator killed after damage")


async def paused(t: Torment) -> None:
    """It stands still while the others go on and are struck; what it knows is old then."""
    node = await t.someone()
    process = t.cluster.nodes[node]
    process.pause()
    t.besides["pause"] += 1
    try:
        for other in t.cluster.nodes:
            if other != node:
                _strike_live(t, other)
        outage = asyncio.ensure_future(t.ordeal.outage("paused"))
        # It may have the only good copy of something: then an election waits for it, and rightly.
        await asyncio.wait([outage], timeout=PAUSE_MS_MAX / 1000)
    finally:
        process.resume()
    await outage


async def two_copies(t: Torment) -> None:
    """The same entry on two nodes: one good copy is left; they get it back before anything else."""
    one, other = t.random.sample(list(t.cluster.nodes), 2)
    processes = [t.cluster.nodes[one], t.cluster.nodes[other]]
    for process in processes:
        process.freeze()
    try:
        hit = _strike_two(t, one, other)
    finally:
        for process in processes:
            process.resume()
    if hit:
        await t.until_whole("")


def _strike_two(t: Torment, one: str, other: str) -> bool:
    volumes = [t.cluster.volume(node) for node in (one, other)]
    with live_files(volumes[0]) as first, live_files(volumes[1]) as second:
        if first is None or second is None:
            return False
        for _ in range(TRIES):
            blows = damage.body(first, t.random)
            if not blows or not t.atlas.permits(one, first, blows, copies_min=2):
                continue
            (header,) = blows[0].entries
            place = second.place(header.base)
            if place is None or place.slot.header != header:
                continue
            same = damage.body_of(t.random, place.segment, place.slot)
            if t.atlas.permits(other, second, same, copies_min=2):
                t.inflict(one, "two copies of an entry, live", blows)
                t.inflict(other, "two copies of an entry, live", same)
                return True
    return False


async def volume_lost(t: Torment) -> None:
    """Everything on it, under a name that stays."""
    await _lose(t, "volume lost", shutil.rmtree)


async def replica_lost(t: Torment) -> None:
    """Files without which it cannot be started: as good as a lost disk."""
    kind, lose = t.random.choice(LOSSES)
    await _lose(t, kind, lose)


async def _lose(t: Torment, kind: str, lose: Callable[[Path], None]) -> None:
    node = await t.someone()
    before = t.incarnation(node)
    await t.until_whole(node)
    t.cluster.nodes[node].kill()
    t.besides["kill -9"] += 1
    await t.until_whole(node)
    lose(t.cluster.volume(node))
    t.count(node, kind, "down")
    t.cluster.nodes[node].start()
    source = await t.ordeal.leader()
    for _ in range(t.random.randint(0, 3)):
        if source != node:
            _strike_live(t, source, PLAIN)
    await t.ordeal.outage(kind)
    await t.until_back(node, before)


def _superblock_zeroed(volume: Path) -> None:
    (path,) = volume.glob("*/superblock")
    path.write_bytes(bytes(path.stat().st_size))


def _head_zeroed(volume: Path) -> None:
    """One sector, and with it both copies."""
    path = sorted(volume.glob("*/*.segment"))[-1]
    with path.open("r+b") as file:
        file.write(bytes(4096))


def _segment_removed(volume: Path) -> None:
    sorted(volume.glob("*/*.segment"))[0].unlink()


LOSSES: list[tuple[str, Callable[[Path], None]]] = [
    ("superblock lost", _superblock_zeroed),
    ("segment head lost", _head_zeroed),
    ("segment removed", _segment_removed),
]

EPISODES: tuple[Episode, ...] = (
    one_live, one_live, one_live, one_live,
    several_live, several_live, several_live,
    one_down, one_down,
    several_down,
    leader_killed, leader_killed,
    struck_and_killed, struck_and_killed,
    coordinator_killed,
    paused,
    two_copies,
    volume_lost,
    replica_lost,
)  # fmt: skip
