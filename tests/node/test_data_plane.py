"""The data plane of nodes, over real connections."""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import pytest
import uvloop
from cluster_keys import KEY

from node.bodies import body_of, body_of_size
from node.cluster import registration
from node.planes import BareClient, PlaneCluster
from shardlog.checksum import seal_body
from shardlog.protocol.coordination import TrimShard
from shardlog.protocol.entry import Entry, Kind
from shardlog.protocol.failures import (
    Illegal,
    NoReplica,
    NotLeader,
    NotReady,
    OffsetTrimmed,
    Overloaded,
    SessionUnknown,
)
from shardlog.protocol.messages import (
    Append,
    Appended,
    ClientRefused,
    Envelope,
    Message,
    Read,
    ReadResult,
    Register,
    Registered,
)
from shardlog.storage.files import Buffer
from shardlog.storage.real_files import RealFile
from shardlog.transport.batch import PREFIX, RECORDS_MAX
from shardlog.transport.connection import ConnectionLimits
from shardlog.transport.failures import ConnectionRefused, TransportFailure
from shardlog.transport.frame_messages import from_message, to_message
from shardlog.transport.frames import (
    FIXED,
    FrameType,
    encode,
    encode_appended,
    encode_locate,
    encode_read,
)
from shardlog_node import data_plane
from shardlog_node.clients import CHANNELS_ALWAYS, REQUEST_COST_BYTES, ClientPort
from shardlog_node.data_plane import DataPlane, PlaneLimits
from shardlog_node.host import NodeHost


def append(session: int, request: int, body: bytes) -> Append:
    return Append(session, request, 1, body, seal_body(body))


def end_of(cluster: PlaneCluster, node: str) -> int:
    return cluster.nodes[node].replicas["orders"].replica.log.end


async def session_of(client: BareClient) -> int:
    answer = await client.ask(registration())
    assert isinstance(answer, Registered), answer
    return answer.session


async def tail(client: BareClient, start: int, bytes_max: int = 0) -> ReadResult:
    client.connection.send(encode_read(1, 77, start, 0, bytes_max, tail=True))
    answer = to_message(await client.next())
    assert isinstance(answer, ReadResult), answer
    return answer


def story(tmp_path: Path, names: str = "a b c", limits: PlaneLimits | None = None):
    """Runs a coroutine function with a cluster, its leader of `orders`, and a client there."""

    def run(told) -> None:
        async def whole() -> None:
            cluster = PlaneCluster(tmp_path, names, limits)
            async with cluster.running():
                leader = await cluster.create("orders")
                async with cluster.client(leader, "orders") as client:
                    await told(cluster, leader, client)

        uvloop.run(whole())  # asyncio 3.11 leaks what it accepts while it stops to listen

    return run


def test_appended_over_the_network_and_read_back(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        for request in range(1, 33):
            client.send(append(session, request, body_of(b"%d" % request)))
        answers = [to_message(await client.next()) for _ in range(32)]
        assert answers == [Appended(session, n, opened + n) for n in range(1, 33)]
        result = await client.ask(Read(5, 0, 100))
        assert isinstance(result, ReadResult)
        assert [entry.body for entry in result.entries] == [
            body_of(b"%d" % n) for n in range(1, 33)
        ]
        found: list[Entry] = []
        while not found or found[-1].header.end < opened + 33:
            start = found[-1].header.end if found else 0
            found += (await tail(client, start)).entries
        kinds = [entry.header.kind for entry in found]
        assert kinds == [Kind.EPOCH_START, Kind.REGISTER, *[Kind.DATA] * 32]
        assert (await tail(client, opened + 5, 300)).entries[0].header.base == opened + 5


@pytest.mark.parametrize("cached", [True, False])
def test_recent_records_are_read_from_memory_and_others_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
):
    threads: list[str] = []
    read, read_cached = RealFile.read, RealFile.read_cached

    def noted(file: RealFile, position: int, length: int) -> bytes:
        threads.append(threading.current_thread().name)
        return read(file, position, length)

    def from_memory(file: RealFile, position: int, length: int) -> Buffer | None:
        return read_cached(file, position, length) if cached else None

    monkeypatch.setattr(RealFile, "read", noted)
    monkeypatch.setattr(RealFile, "read_cached", from_memory)

    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        client.send(append(session, 1, body_of(b"record")))
        await client.next()
        store = cluster.nodes[leader].replicas["orders"].store
        while store.durable_end < opened + 2:  # two others may have committed it
            await asyncio.sleep(0.001)
        known = store.read_cached(opened + 1, opened + 2, 1000) is not None
        assert known or not cached, "this file system does not tell what is in memory"
        threads.clear()
        (entry,) = (await tail(client, opened + 1)).entries
        assert bytes(entry.body) == body_of(b"record")
        assert any(name.startswith("reads") for name in threads) is not known


def test_a_tail_waits_for_what_comes_and_is_told_when_nothing_does(tmp_path: Path):
    @story(tmp_path, limits=PlaneLimits(tail_wait_ms=200))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        end = opened + 1
        empty = await tail(client, end)
        assert (empty.entries, empty.commit) == ((), end)
        async with cluster.client(leader, "orders") as reader:
            waiting = asyncio.create_task(tail(reader, end))
            await client.ask(append(session, 1, body_of(b"news")))
            while not (found := await waiting).entries:
                waiting = asyncio.create_task(tail(reader, end))
            assert [entry.body for entry in found.entries] == [body_of(b"news")]


def test_a_leader_that_hears_no_quorum_does_not_say_that_nothing_is_new(tmp_path: Path):
    """It may have been deposed, and its clients would wait there for ever."""

    @story(tmp_path, limits=PlaneLimits(tail_wait_ms=50))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        assert (await tail(client, end_of(cluster, leader))).entries == ()
        for name in cluster.names:
            if name != leader:
                await cluster.stop(name)
        while cluster.nodes[leader].replicas["orders"].quorum_fresh():
            await asyncio.sleep(0.01)
        client.connection.send(encode_read(1, 8, end_of(cluster, leader), 0, tail=True))
        refused = to_message(await client.next())
        assert isinstance(refused, ClientRefused)
        assert refused.refusal == NotReady("the leader has not heard a quorum lately")


def test_offsets_by_time(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        await client.ask(append(session, 1, body_of(b"news")))
        fixed = FIXED[FrameType.LOCATED]
        for time_ms, offset in ((0, 0), (1 << 62, opened + 2)):
            client.connection.send(encode_locate(1, 9, time_ms))
            assert fixed.unpack((await client.next()).payload) == (9, offset, 0, opened + 2)


def test_those_who_cannot_help_say_so(tmp_path: Path):
    @story(tmp_path, "a b c d")
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        follower = next(name for name in cluster.names if name != leader)
        async with cluster.client(follower, "orders") as other:
            while True:
                refused = await other.ask(Register(1))
                assert isinstance(refused, ClientRefused)
                if refused.refusal == NotLeader(leader):
                    break
            other.connection.send(encode_read(1, 8, 0, 1, tail=True))
            refused = to_message(await other.next())
            assert refused == ClientRefused(0, 8, NotLeader(leader))
        assert await client.attach(2, "no-such-shard") == 0
        for message in (Register(3), Read(3, 0, 1)):
            refused = await client.ask(message, 2)
            assert refused == ClientRefused(0, 3, NoReplica(0))
        assert "no-such-shard" not in cluster.nodes[leader].replicas
        while True:
            refused = await client.ask(append(99, 1, body_of(b"x")))
            assert isinstance(refused, ClientRefused)
            if refused.refusal == SessionUnknown(99):
                break
            assert isinstance(refused.refusal, NotReady), "it has not heard a quorum yet"


def test_a_batch_over_the_limit_and_one_that_was_damaged_are_refused(tmp_path: Path):
    @story(tmp_path, limits=PlaneLimits(entry_bytes_max=1000))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        refused = await client.ask(append(session, 1, body_of_size(1008)))
        assert refused == ClientRefused(
            session, 1, Illegal("a batch of 1008 bytes, more than 1000")
        )
        refused = await client.ask(Append(session, 1, 1, body_of(b"other"), seal_body(b"body")))
        assert isinstance(refused, ClientRefused)
        assert refused.refusal == Illegal("the body does not match its checksum")
        assert await client.ask(append(session, 1, body_of_size(1000))) == Appended(
            session, 1, opened + 1
        )
        assert cluster.planes[leader].budget.bytes == 0


OVER = Overloaded(64)
GOOD = body_of(b"a record")
POISON = {
    "nothing": (b"", 1),
    "text": (b"a line that somebody sent", 1),
    "another version": (b"\0\2" + GOOD[2:], 1),
    "another compression": (b"\3" + GOOD[1:], 1),
    "more records than are in it": (GOOD, 4_294_967_295),
    "fewer records than are in it": (GOOD, 0),
    "a body that is cut": (GOOD[:-8], 1),
    "unknown flags": (GOOD[:12] + b"\x20" + GOOD[13:], 1),
    "compressed, with more records than bytes": (PREFIX.pack(1, 1, 0, 4000) + b"zstd", 1000),
    "compressed, and too long": (PREFIX.pack(1, 1, 0, 1 << 31) + b"zstd", 1),
    "too many records": (PREFIX.pack(1, 1, 0, 60 << 20) + b"zstd", RECORDS_MAX + 1),
}


def test_S13_S20_what_is_no_batch_is_refused_and_moves_nothing(tmp_path: Path):
    @story(tmp_path, "a")
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        for what, (body, count) in POISON.items():
            asked = Append(session, 1, count, body, seal_body(body))
            refused = await client.ask(asked)
            assert isinstance(refused, ClientRefused), what
            assert isinstance(refused.refusal, Illegal), what
            assert refused.refusal.reason.startswith("no batch of records: "), what
        answer = await client.ask(append(session, 1, GOOD))
        assert answer == Appended(session, 1, opened + 1)
        assert cluster.planes[leader].budget.bytes == 0


@pytest.mark.parametrize("size", [1000, 32])
def test_bytes_under_way_in_the_node_are_bounded(tmp_path: Path, size: int):
    most = 5 * (size + REQUEST_COST_BYTES)

    @story(tmp_path, limits=PlaneLimits(inflight_bytes_max=most))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        for request in range(1, 11):
            client.send(append(session, request, body_of_size(size)))
        answers = [to_message(await client.next()) for _ in range(10)]
        refusals = [each.refusal for each in answers if isinstance(each, ClientRefused)]
        assert refusals == [Overloaded(most)] * 5
        assert sum(isinstance(each, Appended) for each in answers) == 5
        assert cluster.planes[leader].budget.bytes == 0


def test_what_comes_at_once_is_given_to_a_replica_in_parts_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(data_plane, "DELIVERED_MAX", 3)
    sizes: list[int] = []
    receive_all = NodeHost.receive_all

    def noted(host: NodeHost, shard: str, envelopes: Sequence[Envelope]) -> None:
        sizes.append(len(envelopes))
        receive_all(host, shard, envelopes)

    monkeypatch.setattr(NodeHost, "receive_all", noted)

    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        for request in range(1, 21):
            client.send(append(session, request, body_of(b"record")))
        answers = [to_message(await client.next()) for _ in range(20)]
        assert answers == [Appended(session, n, opened + n) for n in range(1, 21)]
        assert max(sizes) == 3


def test_reads_that_are_not_taken_are_bounded(tmp_path: Path):
    limits = PlaneLimits(
        reads_max=3, read_bytes_max=100_000, connection=ConnectionLimits(outgoing_bytes_max=1 << 16)
    )

    @story(tmp_path, limits=limits)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        for request in range(1, 41):
            await client.ask(append(session, request, body_of_size(20_000)))
        for nonce in range(1, 6):
            client.connection.send(encode_read(1, nonce, 0, 0, tail=True))
        (port,) = cluster.planes[leader].ports
        answered: set[int] = set()
        while len(answered) < 5:
            answer = to_message(await client.next())
            assert isinstance(answer, ReadResult), answer
            answered.add(answer.nonce)
            assert port.reads <= 3, "the others wait for their turn"
        for nonce in range(6, 11):
            client.send(Read(nonce, 0, 1))
        answers = [to_message(await client.next()) for _ in range(5)]
        refused = {each.nonce for each in answers if isinstance(each, ClientRefused)}
        assert refused == {9, 10}


def test_whoever_reads_raw_may_ask_for_more_up_to_a_bound(tmp_path: Path):
    @story(tmp_path, limits=PlaneLimits(read_bytes_max=10_000, tail_bytes_max=20_000))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        for request in range(1, 9):
            assert isinstance(
                await client.ask(append(session, request, body_of_size(4_000))), Appended
            )
        for nonce, bytes_max, count in ((20, 0, 2), (21, 10_000, 2), (22, 1 << 20, 4)):
            client.connection.send(encode_read(1, nonce, 3, 64, bytes_max, tail=True))
            answer = to_message(await client.next())
            assert isinstance(answer, ReadResult)
            assert len(answer.entries) == count


def test_an_answer_to_a_confirmed_read_is_bounded(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        for request in range(1, 6):
            assert isinstance(
                await client.ask(append(session, request, body_of_size(400_000))), Appended
            )
        answer = await client.ask(Read(9, 0, 1024))
        assert isinstance(answer, ReadResult)
        assert [entry.header.request for entry in answer.entries] == [1, 2]
        assert answer.commit == answer.entries[-1].header.end + 3


def test_one_who_takes_nothing_is_dismissed_and_others_are_served(tmp_path: Path):
    """Room for one answer: it is taken by nobody, until its client is gone."""
    limits = PlaneLimits(
        connection=ConnectionLimits(silence_ms=500, ping_after_ms=100),
        inflight_bytes_max=2 << 20,
        reads_max=100,
    )

    @story(tmp_path, limits=limits)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        appended = await client.ask(append(session, 1, body_of_size(800_000)))
        assert isinstance(appended, Appended)
        plane = cluster.planes[leader]
        async with cluster.client(leader, "orders") as rude:
            rude.connection.hold(1 << 30)  # it reads no more, but says that it lives
            for nonce in range(1, 101):  # far more than sockets take
                rude.connection.send(encode_read(1, nonce, appended.base, 0, tail=True))
            while not plane.tails.held:
                await asyncio.sleep(0.01)
            assert plane.answers.bytes <= 2 * plane.answers.bytes_max
            assert (await tail(client, appended.base)).entries
        while plane.answers.bytes:
            await asyncio.sleep(0.01)


def test_S14_slow_readers_leave_room_for_others(tmp_path: Path):
    """They are not dismissed: as many as there are, they hold a part of the room only."""
    limits = PlaneLimits(
        connection=ConnectionLimits(outgoing_bytes_max=16 << 20, silence_ms=600_000),
        inflight_bytes_max=16 << 20,
    )

    @story(tmp_path, "a", limits=limits)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        appended = await client.ask(append(session, 1, body_of_size(200_000)))
        assert isinstance(appended, Appended)
        plane = cluster.planes[leader]
        async with AsyncExitStack() as stack:
            for _ in range(7):
                rude = await stack.enter_async_context(cluster.client(leader, "orders"))
                rude.connection.hold(1 << 30)  # it reads no more
                for nonce in range(1, 151):  # far more than sockets take
                    rude.connection.send(encode_read(1, nonce, appended.base, 0, tail=True))
            while len(plane.tails.held) < 7:
                await asyncio.sleep(0.01)
            assert plane.answers.bytes < plane.answers.bytes_max
            for _ in range(50):
                assert (await tail(client, appended.base)).entries
        while plane.answers.bytes or plane.tails.held:
            await asyncio.sleep(0.01)


def test_S19_tails_are_bounded_for_a_connection(tmp_path: Path):
    @story(tmp_path, "a", limits=PlaneLimits(tails_max=3, tail_wait_ms=60_000))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        for channel in range(2, 6):
            await client.attach(channel, "orders")
            client.connection.send(encode_read(channel, 1, 1 << 40, 0, tail=True))
        refused = to_message(await client.next())
        assert refused == ClientRefused(0, 1, Overloaded(3))
        await client.attach(2, "orders")  # what waited there is forgotten
        client.connection.send(encode_read(2, 2, 1 << 40, 0, tail=True))
        waiting = cluster.planes[leader].tails.waiting
        while len(waiting["orders"]) < 3 + 1:  # that of the channel that was is not looked for
            await asyncio.sleep(0.01)
        client.connection.send(encode_read(3, 9, 1 << 40, 0, tail=True))
        assert to_message(await client.next()) == ClientRefused(0, 9, Overloaded(3))


def test_S19_one_connection_opens_so_many_sessions_of_a_shard(tmp_path: Path):
    @story(tmp_path, "a")
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        for nonce in range(1, 65):
            assert isinstance(await client.ask(Register(nonce)), Registered)
        await client.attach(1, "orders")
        answers = [await client.ask(Register(nonce)) for nonce in range(100, 150)]
        refused = [each for each in answers if isinstance(each, ClientRefused)]
        assert {each.refusal for each in refused} == {OVER}
        assert refused  # some more are opened each second
        async with cluster.client(leader, "orders") as another:
            assert isinstance(await another.ask(Register(1)), Registered)


@pytest.mark.parametrize("kind", ["a flawed append", "a read", "a search", "a registration"])
def test_S19_a_tail_is_not_forgotten_for_what_else_has_its_number(tmp_path: Path, kind: str):
    """What is refused at once ends nothing that waits, and whoever mixes numbers is told so."""

    @story(tmp_path, "a", limits=PlaneLimits(tails_max=3, reads_max=0, tail_wait_ms=60_000))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        for number in range(1, 10):
            frames = {
                "a flawed append": from_message(1, Append(0, number, 1, b"x", 1)),
                "a read": encode_read(1, number, 0, 10),
                "a search": encode_locate(1, number, 0),
                "a registration": from_message(1, Register(number)),
            }
            client.connection.send(encode_read(1, number, 1 << 40, 0, tail=True))
            client.connection.send(frames[kind])
        answers: list[Message] = []
        with pytest.raises(TransportFailure) if kind != "a flawed append" else nullcontext():
            while len(answers) < 9 + 6:
                answers.append(to_message(await client.next()))
        waiting = cluster.planes[leader].tails.waiting["orders"]
        assert len(waiting) <= 3
        assert sum(each == ClientRefused(0, 9, Overloaded(3)) for each in answers) <= 1


def test_S19_channels_of_all_clients_are_bounded(tmp_path: Path):
    limits = PlaneLimits(all_channels_max=40, channels_max=30)

    @story(tmp_path, "a", limits=limits)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        async with AsyncExitStack() as stack:

            async def another() -> BareClient:
                return await stack.enter_async_context(cluster.client(leader, "orders"))

            rude = await another()
            for channel in range(2, 31):
                await rude.attach(channel, "orders")
            late = await another()
            for channel in range(2, CHANNELS_ALWAYS + 1):
                await late.attach(channel, "orders")
            with pytest.raises(ConnectionRefused, match="channels are bound"):
                await late.attach(99, "orders")
            assert isinstance(await (await another()).ask(Register(1)), Registered)


def test_S14_answers_that_nobody_takes_are_bounded_together():
    """Those whom most is owed are dismissed, and no more of them than have to be."""

    class Owed(ClientPort):
        def __init__(self, size: int) -> None:
            self.size, self.dismissed = size, False

        @property
        def unsent_bytes(self) -> int:
            return self.size

        def dismiss(self, why: str) -> None:
            self.dismissed = True

    plane = DataPlane("a", PlaneLimits(unsent_bytes_max=100), time.time_ns, KEY)
    owed = [Owed(size) for size in (30, 0, 60, 50)]
    plane.ports |= set(owed)
    plane.bound_unsent()
    assert [each.dismissed for each in owed] == [False, False, True, False]


def test_S19_whoever_opened_no_sessions_for_long_has_not_saved_up_for_more(tmp_path: Path):
    @story(tmp_path, "a", limits=PlaneLimits(registered_max=8))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        assert isinstance(await client.ask(Register(1)), Registered)
        (port,) = cluster.planes[leader].ports
        for _ in range(10):
            port.look(60_000)
        answers = [await client.ask(Register(nonce)) for nonce in range(100, 160)]
        assert any(isinstance(each, ClientRefused) for each in answers)


def test_reads_of_a_channel_that_is_bound_anew_count_no_more(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        await session_of(client)
        plane = cluster.planes[leader]
        (port,) = plane.ports
        for name in cluster.names:
            if name != leader:
                await cluster.stop(name)
        client.send(Read(5, 0, 100))
        while not port.reads:
            await asyncio.sleep(0.01)
        assert plane.answers.bytes
        await client.attach(1, "orders")
        assert (port.reads, plane.answers.bytes) == (0, 0)


def test_T3_a_verified_read_has_a_damaged_control_entry_repaired(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        await client.ask(append(session, 1, body_of(b"news")))
        hosted = cluster.nodes[leader].replicas["orders"]
        while hosted.store.fresh or hosted.store.waiting or hosted.store.running:
            await asyncio.sleep(0.01)
        place = hosted.store.files.segments.covering(opened)
        assert place is not None
        with open(place.segment.path, "r+b") as file:
            file.seek(place.slot.position + 20)
            file.write(b"\xff")
        nonce = 100
        while True:
            nonce += 1
            client.connection.send(encode_read(1, nonce, opened, 1, verified=True))
            answer = to_message(await client.next())
            if isinstance(answer, ReadResult):
                break
            assert isinstance(answer, ClientRefused)
            await asyncio.sleep(0.01)
        kinds = [entry.header.kind for entry in answer.entries]
        assert kinds == [Kind.REGISTER, Kind.DATA]
        assert hosted.repaired


def test_more_channels_than_may_be_end_the_connection(tmp_path: Path):
    @story(tmp_path, limits=PlaneLimits(channels_max=3))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        for channel in (2, 3):
            await client.attach(channel, "orders")
        with pytest.raises(ConnectionRefused):
            await client.attach(4, "orders")


def test_trimmed_offsets_are_told(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        for request in range(1, 11):
            await client.ask(append(session, request, body_of(b"x")))
        await cluster.coordinator.command("orders", TrimShard(opened + 5))
        while cluster.nodes[leader].replicas["orders"].replica.log.first != opened + 5:
            await asyncio.sleep(0.01)
        client.connection.send(encode_read(1, 4, 0, 0, tail=True))
        refused = to_message(await client.next())
        assert refused == ClientRefused(0, 4, OffsetTrimmed(opened + 5))


@pytest.mark.parametrize(
    "frame",
    [
        encode(FrameType.ACK, 1, bytes(FIXED[FrameType.ACK].size)),
        encode_appended(1, 1, 1, 1),
        encode_read(7, 1, 0, 0),
    ],
    ids=["of a node", "an answer", "on no channel"],
)
def test_what_a_client_may_not_say_ends_its_connection_alone(tmp_path: Path, frame):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        client.connection.send(frame)
        with pytest.raises(ConnectionRefused):
            await client.next()
        async with cluster.client(leader, "orders") as another:
            await session_of(another)


def test_the_leader_stops_and_another_goes_on(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await session_of(client)
        opened = end_of(cluster, leader) - 1
        await client.ask(append(session, 1, body_of(b"before")))
        await cluster.stop(leader)
        with pytest.raises(TransportFailure):
            await client.next()
        successor = await cluster.leader("orders", other_than=leader)
        async with cluster.client(successor, "orders") as again:
            answer = await again.ask(append(session, 1, body_of(b"before")))
            assert answer == Appended(session, 1, opened + 1), "a retry (T6)"
            answer = await again.ask(append(session, 2, body_of(b"after")))
            assert isinstance(answer, Appended)
            await cluster.begin(leader)
            result = await again.ask(Read(5, 0, 100))
            assert isinstance(result, ReadResult)
            assert [entry.body for entry in result.entries] == [
                body_of(b"before"),
                body_of(b"after"),
            ]
