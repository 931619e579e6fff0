"""The scrubber: reads all that is at rest again and again, so that damage is found while others
still have a good copy.

It works in a thread, on a few entries at a time, and then rests: for as long as keeps it within a
share of one core and a rate of bytes.  What it finds bad it only tells the replica, which marks the
entry and has it repaired.  When it has come to the end of a log it looks at the copies of the
superblock and of the segments' heads, which only this node can make good, and starts over.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardlog.protocol.effects import ReadFailed, RewriteEntry
from shardlog.protocol.entry import Header, Kind
from shardlog.protocol.states import Role
from shardlog.storage.changes import Mend
from shardlog.storage.failures import StorageFailure
from shardlog.storage.scrubbing import Scrubbed

if TYPE_CHECKING:
    from shardlog.storage.store import Store
    from shardlog_node.host import HostedReplica, NodeHost

PIECE_ENTRIES = 64
PIECE_BYTES = 256 << 10
REST_MIN_MS = 5
IDLE_MS = 1000


@dataclass(frozen=True, slots=True)
class ScrubLimits:
    """`core_share` is of one core, by CPU time; 0 turns the scrubber off."""

    core_share: float = 0.02
    bytes_per_s: int = 8 << 20

    def rest_s(self, read_bytes: int, cpu_s: float) -> float:
        """How long to rest after a piece, so that neither share nor rate is passed."""
        by_core = cpu_s / self.core_share - cpu_s
        by_bytes = read_bytes / self.bytes_per_s
        return max(by_core, by_bytes, REST_MIN_MS / 1000)


@dataclass(slots=True)
class Progress:
    """One replica's: how far this round is, how many were finished, and what they found."""

    incarnation: int
    at: int = 0
    rounds: int = 0
    entries: int = 0
    found_bad: int = 0
    slots_mended: int = 0


class Scrubber:
    """`run` is a task for as long as the node lives."""

    def __init__(self, host: NodeHost, limits: ScrubLimits) -> None:
        self._host = host
        self._limits = limits
        self.progress: dict[str, Progress] = {}

    async def run(self) -> None:
        if not self._limits.core_share:
            await asyncio.Event().wait()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "scrub") as thread:
            while True:
                worked = False
                for shard in self.progress.keys() - self._host.replicas.keys():
                    del self.progress[shard]
                for shard, hosted in list(self._host.replicas.items()):
                    state = self._state(shard, hosted)
                    start = max(state.at, hosted.replica.log.first)
                    end = hosted.store.durable_end
                    if start >= end:
                        if state.at:
                            looked = await loop.run_in_executor(thread, look_at, hosted.store)
                            await self._finish(hosted, state, *looked)
                        continue
                    piece, cpu_s = await loop.run_in_executor(
                        thread, read_piece, hosted.store, start, end
                    )
                    worked = True
                    self._take(hosted, state, piece)
                    await asyncio.sleep(self._limits.rest_s(piece.bytes, cpu_s))
                if not worked:
                    await asyncio.sleep(IDLE_MS / 1000)

    def _state(self, shard: str, hosted: HostedReplica) -> Progress:
        state = self.progress.get(shard)
        incarnation = hosted.replica.incarnation
        if state is None or state.incarnation != incarnation:
            state = self.progress[shard] = Progress(incarnation)
        return state

    async def _finish(
        self, hosted: HostedReplica, state: Progress, whole: bool, cpu_s: float
    ) -> None:
        """The end of a round."""
        if not whole:
            hosted.tend(Mend())
        await asyncio.sleep(self._limits.rest_s(0, cpu_s))
        state.rounds += 1
        state.at = 0
        hosted.replica.scrubbed, hosted.replica.scrub_rounds = state.at, state.rounds

    def _take(self, hosted: HostedReplica, state: Progress, piece: Scrubbed) -> None:
        state.at = hosted.replica.scrubbed = piece.end
        state.entries += piece.entries
        if self._host.replicas.get(hosted.replica.shard) is not hosted:
            return
        for start, end in piece.bad:
            for base in self._bad_in(hosted, start, end):
                state.found_bad += 1
                hosted.found_bad["scrub"] += 1
                hosted.step(ReadFailed(base))
        for header in piece.slotless:
            self._mend_slot(hosted, state, header)

    def _mend_slot(self, hosted: HostedReplica, state: Progress, header: Header) -> None:
        try:
            same = hosted.replica.log.starting_at(header.base) == header
            entry = hosted.store.read(header) if same else None
        except StorageFailure:
            return
        if entry is not None:
            state.slots_mended += 1
            hosted.submit(RewriteEntry(entry))

    def _bad_in(self, hosted: HostedReplica, start: int, end: int) -> list[int]:
        """Looked at once more: the log may have been cut or repaired since it was read.

        Of a stretch that the files do not tell apart any more the latest headers may still be in
        memory, so each of them is looked at; where they are not, looking them up marks the stretch.
        """
        log = hosted.replica.log
        if hosted.replica.role is Role.NOT_MEMBER:
            return []
        known = set(log.marks)
        try:
            return [
                header.base
                for header in log.between(start, end)
                if header.base not in known
                and (header.kind is Kind.UNKNOWN or hosted.store.read(header) is None)
            ]
        except StorageFailure:
            return []  # it cannot be told now


def look_at(store: Store) -> tuple[bool, float]:
    """Whether superblock and heads are whole, and the CPU time that it took; in a thread."""
    began = time.thread_time()
    try:
        whole = store.is_whole()
    except StorageFailure:
        whole = True  # it cannot be told now
    return whole, time.thread_time() - began


def read_piece(store: Store, start: int, end: int) -> tuple[Scrubbed, float]:
    """Some entries, and the CPU time that they took; in a thread."""
    began = time.thread_time()
    try:
        piece = store.scrub(start, end, PIECE_ENTRIES, PIECE_BYTES)
    except StorageFailure:
        piece = Scrubbed(
            end
        )  # trimmed or started over meanwhile; the next round sees what there is
    return piece, time.thread_time() - began
