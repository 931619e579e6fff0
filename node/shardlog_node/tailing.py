"""Reads at the tail: whatever is committed here, as it stands in the files.

No quorum is asked, because what is committed stays so; an answer that nothing new is there is
given only by a leader that has lately heard a quorum, lest a client should wait for ever at one
that was deposed.  What is in memory is read at once; the rest in threads, where a disk may take its
time.  What is read but not taken by its client is bounded for all of them together; reads beyond
that are held until there is room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from shardlog.protocol.effects import ReadFailed
from shardlog.protocol.entry import Entry, Header, Kind
from shardlog.protocol.failures import (
    CorruptEntry,
    NoReplica,
    NotReady,
    OffsetTrimmed,
    Refusal,
)
from shardlog.protocol.replica import Replica
from shardlog.protocol.serving import refusal_to_serve
from shardlog.storage.failures import StorageFailure
from shardlog.storage.files import Buffer
from shardlog.storage.segment import Raw
from shardlog.transport.entries import join_entries
from shardlog.transport.frames import (
    encode_located,
    encode_read_result,
    encode_read_result_head,
)
from shardlog_node.waiting_tails import WaitingTails

if TYPE_CHECKING:
    from shardlog_node.clients import Budget, ClientChannel, Port
    from shardlog_node.host import HostedReplica, NodeHost

READING_THREADS = 2


@dataclass(slots=True)
class TailRead:
    """One that waits for something to be committed at or behind `start`.

    `own`: what this replica has, leader or not, as it is, and without waiting.
    """

    channel: ClientChannel
    nonce: int
    start: int
    bytes_max: int
    verified: bool
    own: bool
    ends_ms: int = 0

    def refuse(self, refusal: Refusal) -> None:
        self.channel.refuse(0, self.nonce, refusal)


class Tails:
    """`waiting` are the reads that found nothing yet, by shard; `held` those without room.

    Clients whose reads are held take turns.
    """

    def __init__(self, host: NodeHost, answers: Budget, wait_ms: int) -> None:
        self._host = host
        self._answers = answers
        self._wait_ms = wait_ms
        self.held: dict[Port, deque[TailRead]] = {}
        self._threads = ThreadPoolExecutor(READING_THREADS, "reads")
        self.waiting: dict[str, WaitingTails[TailRead]] = {}
        # The commit offsets that those who wait were compared with.
        self._commits: dict[str, int] = {}
        self._now_ms = 0

    def read(
        self,
        channel: ClientChannel,
        nonce: int,
        start: int,
        bytes_max: int,
        verified: bool,
        own: bool = False,
    ) -> None:
        self._take(TailRead(channel, nonce, start, bytes_max, verified and not own, own))

    def _take(self, read: TailRead) -> None:
        shard = read.channel.shard
        hosted = self._host.replicas.get(shard)
        if hosted is None:
            read.refuse(NoReplica(0))
            return
        refusal = _refusal(hosted, read)
        if refusal is not None:
            read.refuse(refusal)
        elif _reaches_to(hosted, read) > read.start:
            self._serve(hosted, read)
        elif read.own:
            self._nothing(hosted, read)
        else:
            read.ends_ms = self._now_ms + self._wait_ms
            self.waiting.setdefault(shard, WaitingTails()).add(read)

    def go_on(self) -> None:
        """There may be room for those that were held."""
        for port in list(self.held):
            if self._answers.bytes >= self._answers.bytes_max:
                return
            held = self.held.pop(port)
            while held and port.window.room and port not in self.held:
                read = held.popleft()
                if read.channel.awaits(read.nonce):
                    self._take(read)
            if held:
                self.held.setdefault(port, deque()).extend(held)

    def _hold(self, read: TailRead) -> None:
        self.held.setdefault(read.channel.port, deque()).append(read)

    def forget(self, port: Port) -> None:
        """Nobody is there any more."""
        self.held.pop(port, None)

    def stepped(self, hosted: HostedReplica) -> None:
        """Something may have been committed, or the leadership lost."""
        replica = hosted.replica
        waiting = self.waiting.get(replica.shard)
        if waiting is None:
            return
        if replica.lead is None:
            del self.waiting[replica.shard]
            for read in waiting:
                self._take(read)
        elif replica.commit != self._commits.get(replica.shard):  # a shard may be made anew
            self._commits[replica.shard] = replica.commit
            going = waiting.below(replica.commit)
            if not waiting:
                del self.waiting[replica.shard]
            for read in going:
                self._take(read)

    def tick(self, passed_ms: int) -> None:
        """Those that have waited long enough are told that there is nothing."""
        self._now_ms += passed_ms
        for shard, waiting in list(self.waiting.items()):
            late = waiting.ended(self._now_ms)
            if not waiting:
                del self.waiting[shard]
            for read in late:
                self._give_up(self._host.replicas.get(shard), read)

    def _give_up(self, hosted: HostedReplica | None, read: TailRead) -> None:
        if hosted is None:
            read.refuse(NoReplica(0))
        elif not hosted.quorum_fresh():
            read.refuse(NotReady("the leader has not heard a quorum lately"))
        else:
            self._nothing(hosted, read)

    def _nothing(self, hosted: HostedReplica, read: TailRead) -> None:
        commit = _reaches_to(hosted, read)
        frame = encode_read_result(read.channel.number, read.nonce, commit, 0, [])
        read.channel.result(read.nonce, frame)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def refuse(self, shard: str) -> None:
        """Those who wait are told by their channel."""
        self.waiting.pop(shard, None)

    def locate(self, channel: ClientChannel, nonce: int, timestamp_ms: int) -> None:
        hosted = self._host.replicas.get(channel.shard)
        refusal = NoReplica(0) if hosted is None else refusal_to_serve(hosted.replica)
        if refusal is not None or hosted is None:
            channel.refuse(0, nonce, refusal or NoReplica(0))
            return
        replica = hosted.replica
        searched_to = hosted.store.durable_end

        def found(offset: int) -> None:
            if offset >= searched_to:
                offset = _not_older(replica, timestamp_ms, searched_to)
            offset = max(min(offset, replica.commit), replica.log.first)
            frame = encode_located(channel.number, nonce, offset, replica.log.first, replica.commit)
            channel.result(nonce, frame)

        self._in_thread(
            partial(hosted.store.at_time, timestamp_ms),
            found,
            lambda: channel.refuse(0, nonce, NotReady("the log cannot be searched")),
        )

    # --- serving ---------------------------------------------------------------------------------

    def _serve(self, hosted: HostedReplica, read: TailRead) -> None:
        window = read.channel.port.window
        size = min(read.bytes_max, window.room)
        if not size or not self._answers.take(size):
            self._hold(read)
            return
        if not read.channel.begins_answer(read.nonce):
            self._answers.give_back(size)
            self._hold(read)
            return
        window.owed += size
        commit = _reaches_to(hosted, read)

        def done(found: tuple[Raw, Buffer] | None) -> None:
            self._answers.give_back(size)
            window.owed -= size
            if found is None:
                self._serve_one_by_one(hosted, read)
                return
            raw, data = found
            channel = read.channel
            head = encode_read_result_head(channel.number, read.nonce, commit, raw.count, len(data))
            channel.result(read.nonce, [head, data])

        def read_raw() -> tuple[Raw, Buffer] | None:
            raw = hosted.store.raw(read.start, commit, size)
            return None if raw is None else (raw, hosted.store.read_raw(raw))

        cached = None
        if not read.verified:
            cached = hosted.store.read_cached(read.start, commit, size)
        if read.verified or cached is not None:
            done(cached)
        else:
            self._in_thread(read_raw, done, lambda: done(None))

    def _serve_one_by_one(self, hosted: HostedReplica, read: TailRead) -> None:
        """Each is verified.  What is committed but not durable here yet is still in memory."""
        try:
            self._read_one_by_one(hosted, read)
        except StorageFailure as failure:
            read.refuse(NotReady(f"the log cannot be read: {failure}"))

    def _read_one_by_one(self, hosted: HostedReplica, read: TailRead) -> None:
        replica = hosted.replica
        first = replica.log.covering(read.start)
        if first is None:
            read.refuse(OffsetTrimmed(replica.log.first))
            return
        entries: list[Entry] = []
        size = 0
        for header in replica.log.between(first.base, _reaches_to(hosted, read), 64):
            entry = hosted.read(header) if header.kind is not Kind.UNKNOWN else None
            if entry is None:
                if not entries:
                    self._damaged(hosted, read, header)
                    return
                break
            size += len(entry.body)
            if entries and size > read.bytes_max:
                break
            entries.append(entry)
        channel = read.channel
        frame = encode_read_result(
            channel.number,
            read.nonce,
            _reaches_to(hosted, read),
            len(entries),
            join_entries(entries),
        )
        channel.result(read.nonce, frame)

    def _damaged(self, hosted: HostedReplica, read: TailRead, header: Header) -> None:
        """Told, and repaired unless it was asked for as it is."""
        read.refuse(CorruptEntry(header.id))
        if not read.own:
            hosted.step(ReadFailed(header.base))

    def _in_thread(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[], None]
    ) -> None:
        loop = asyncio.get_running_loop()

        def ended(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return
            failure = future.exception()
            if failure is None:
                done(future.result())
                return
            failed()
            if not isinstance(failure, StorageFailure):
                raise failure

        loop.run_in_executor(self._threads, work).add_done_callback(ended)


def _not_older(replica: Replica, timestamp_ms: int, start: int) -> int:
    """The first committed entry from `start` on that is not older, or the commit offset.

    It may not be durable here yet.
    """
    for header in replica.log.between(start, replica.commit):
        if header.timestamp_ms >= timestamp_ms:
            return header.base
    return replica.commit


def _reaches_to(hosted: HostedReplica, read: TailRead) -> int:
    """What may be answered: all that is committed, of an own copy what is durable besides."""
    replica = hosted.replica
    return min(replica.commit, replica.durable_end) if read.own else replica.commit


def _refusal(hosted: HostedReplica, read: TailRead) -> Refusal | None:
    replica = hosted.replica
    refusal = None if read.own else refusal_to_serve(replica)
    if refusal is None and read.start < replica.log.first:
        return OffsetTrimmed(replica.log.first)
    return refusal
