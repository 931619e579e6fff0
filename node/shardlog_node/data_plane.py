"""The data plane of a node: clients and other nodes, over frames.

What comes in during one turn of the loop is gathered and given to each replica at once, so that a
hundred appends become one write, one sync and one message for each follower.  What replicas say
goes to the client's channel or to the replica it is meant for: over the channel that the other side
bound, if there is one, or over a link of our own.  A message that cannot be sent is dropped; the
protocol asks again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shardlog.protocol.entry import Entry
from shardlog.protocol.messages import Envelope
from shardlog.protocol.replica import FROM_CLIENTS
from shardlog.transport.cluster_key import ClusterKey
from shardlog.transport.connection import Connection, ConnectionLimits, Receiver, WallClock
from shardlog.transport.control_calls import Addresses
from shardlog.transport.endpoints import Listener, listen
from shardlog.transport.entries import join_entries
from shardlog.transport.failures import TransportFailure
from shardlog.transport.frames import Buffer, Frame
from shardlog.transport.handshake import Role, decode_pong
from shardlog_node.abandoned import AbandonedAppends, Ends
from shardlog_node.channels import Channel, Incoming, Key, key_of
from shardlog_node.clients import Budget, ClientChannel, ClientPort
from shardlog_node.host import HostedReplica, NodeHost
from shardlog_node.links import Link
from shardlog_node.tailing import Tails
from shardlog_node.unfinished import Unfinished
from shardlog_node.waves import BACK_S, LOOK_S, Wave

TICK_MS = 100
PING_TICKS = 10
DELIVERED_MAX = 1024
"""To one replica in one step."""

OnPong = Callable[[str, int, int, int], None]
"""(node, sent and received by our loop's clock in ns, the other side's clock in ns)"""


@dataclass(frozen=True, slots=True)
class PlaneLimits:
    """Every bound of the data plane.

    Of one connection: `reads_max`, `tails_max`, `channels_max`, and `registered_max`, the sessions
    that it opens of a shard at once, which keeps 256 of all clients.  Of all clients:
    `all_channels_max`, beyond which each connection has a few, and `unsent_bytes_max`, of answers
    that are not taken, those to reads apart.
    """

    connection: ConnectionLimits = field(
        default_factory=lambda: ConnectionLimits(
            outgoing_bytes_max=16 << 20, ping_after_ms=500, silence_ms=2500
        )
    )
    connections_max: int = 10_000
    entry_bytes_max: int = 4 << 20
    inflight_bytes_max: int = 64 << 20
    reads_max: int = 8
    tails_max: int = 1024
    channels_max: int = 1024
    all_channels_max: int = 65_536
    unsent_bytes_max: int = 16 << 20
    registered_max: int = 64
    read_bytes_max: int = 1 << 20
    tail_bytes_max: int = 2 << 20
    tail_wait_ms: int = 1000
    link_timeout_ms: int = 1000
    link_retry_ms: int = 50


class DataPlane:
    """`start`, run `tend`, then `send`; `learn` where other nodes are."""

    def __init__(
        self,
        name: str,
        limits: PlaneLimits,
        wall_ns: WallClock,
        key: ClusterKey,
        tls: ssl.SSLContext | None = None,
        link_tls: ssl.SSLContext | None = None,
        on_pong: OnPong | None = None,
    ) -> None:
        self.name = name
        self.limits = limits
        self.wall_ns = wall_ns
        self.key = key
        self.tls = tls
        self.link_tls = link_tls
        self.on_pong = on_pong
        self.host: NodeHost
        self.tails: Tails
        self.addresses: dict[str, str] = {}
        self.links: dict[str, Link] = {}
        self.budget = Budget(limits.inflight_bytes_max)
        self.abandoned = AbandonedAppends(self.budget, self._ends_of)
        # Answers to reads that clients have not taken.
        self.answers = Budget(limits.inflight_bytes_max // 2)
        # Frames that are not whole yet, from clients and from nodes.
        self.unfinished = Unfinished(limits.inflight_bytes_max // 2)
        self.unfinished_of_nodes = Unfinished(limits.inflight_bytes_max)
        # Links that ended because one of their sides was not permitted, and the last of them.
        self.links_refused = 0
        self._link_refused_last = ""
        self.ports: set[ClientPort] = set()
        # Messages that could not be sent.
        self.dropped = 0
        # Bytes of entries by shard and node: to followers, and to those who fetched them.
        self.entries_sent: Counter[tuple[str, str]] = Counter()
        self.fetched_sent: Counter[tuple[str, str]] = Counter()
        # What clients were refused, by type.
        self.refusals: Counter[str] = Counter()
        # Connections that other nodes opened.
        self.incoming: set[Incoming] = set()
        self._clients: dict[str, ClientChannel] = {}
        self._channels: dict[Key, Channel] = {}
        # For each shard what came in this turn, and what is left of turns before.
        self._gathered: dict[str, list[Envelope]] = {}
        self._waiting: dict[str, deque[Envelope]] = {}
        self._delivery_due = False
        # Of shards that clients are bound to, and those whose appends wait for each other.
        self._waves: dict[str, Wave] = {}
        self._holding: dict[Wave, asyncio.TimerHandle] = {}
        self._raw: tuple[tuple[Entry, ...], list[Buffer]] = ((), [])
        self._named = 0
        self._listener: Listener | None = None

    def attach_host(self, host: NodeHost) -> None:
        self.host = host
        self.tails = Tails(host, self.answers, self.limits.tail_wait_ms)
        host.on_stepped = self._stepped
        host.on_stopped = self._refuse_all

    async def start(self, host: str, port: int) -> tuple[str, int]:
        self._listener = await listen(
            host,
            port,
            name=self.name,
            receiver=lambda: Accepted(self),
            limits=self.limits.connection,
            wall_ns=self.wall_ns,
            connections_max=self.limits.connections_max,
            tls=self.tls,
            key=self.key,
        )
        return self._listener.address

    async def stop(self) -> None:
        self.tails.close()
        for look in self._holding.values():
            look.cancel()
        for link in list(self.links.values()):
            await link.close()
        if self._listener is not None:
            await self._listener.close("the node is stopping")

    @property
    def connections(self) -> int:
        return len(self._listener.connections) if self._listener else 0

    @property
    def refused(self) -> int:
        """Connections that ended before they were greeted, ours to other nodes among them."""
        return self.links_refused + (self._listener.refused if self._listener else 0)

    @property
    def refused_last(self) -> str:
        """Who was refused last and why; links first, since they are of this cluster."""
        return self._link_refused_last or (self._listener.refused_last if self._listener else "")

    def link_refused(self, node: str, failure: TransportFailure) -> None:
        self.links_refused += 1
        self._link_refused_last = f"{node} at {self.addresses.get(node)}: {failure}"

    def learn(self, addresses: Addresses) -> None:
        """Where other nodes are; one that has moved gets a new link."""
        for node, address in addresses.items():
            if self.addresses.get(node) != address:
                self.addresses[node] = address
                if node in self.links:
                    self.links[node].moved()

    async def tend(self) -> None:
        """What has to do with time; a task for as long as the node listens."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            ticks += 1
            self.tails.tick(TICK_MS)
            if self.tails.held:
                for port in self.ports:
                    port.settle()
                self.tails.go_on()
            if ticks % PING_TICKS == 0:
                for port in list(self.ports):
                    port.look(PING_TICKS * TICK_MS)
                self.bound_unsent()
                self.abandoned.look()
                for link in self.links.values():
                    link.look()
                for incoming in self.incoming:
                    incoming.look()

    def _ends_of(self, shard: str) -> Ends | None:
        hosted = self.host.replicas.get(shard)
        if hosted is None or hosted.replica.lead is None:
            return None
        return hosted.replica.log.end, hosted.replica.commit

    def bound_unsent(self) -> None:
        """Dismiss those who take least of their answers, if all that waits is too much."""
        unsent = {port: size for port in self.ports if (size := port.unsent_bytes)}
        too_much = sum(unsent.values()) - self.limits.unsent_bytes_max
        for port in sorted(unsent, key=unsent.__getitem__, reverse=True):
            if too_much <= 0:
                return
            too_much -= unsent[port]
            port.dismiss("answers are not taken")

    def pong(self, connection: Connection, frame: Frame) -> None:
        """For the cluster's clock: both sides of a connection ask."""
        pong = decode_pong(frame)
        if self.on_pong is not None and connection.answers_ping(pong.echo_ns):
            node = connection.name
            received_ns = int(asyncio.get_running_loop().time() * 1e9)
            self.on_pong(node, pong.echo_ns, received_ns, pong.wall_ns)

    # --- in --------------------------------------------------------------------------------------

    def gather(self, envelope: Envelope) -> None:
        """Give it to its replica, with all that comes in this turn."""
        gathered = self._gathered
        if not self._delivery_due:
            self._begin_delivery()
        known = gathered.get(envelope.shard)
        if known is None:
            gathered[envelope.shard] = [envelope]
        else:
            known.append(envelope)

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def gather_lone(self, wave: Wave, envelope: Envelope, size: int, answered_s: float) -> None:
        """The only append of its client, which may wait for those of others.

        The one before it was answered then.
        """
        loop = asyncio.get_running_loop()
        going = wave.admit(envelope, size, loop.time() - answered_s < BACK_S)
        if going:
            self._gather_all(wave, going)
        elif wave not in self._holding:
            self._holding[wave] = loop.call_later(LOOK_S, self._look, wave)

    def gather_append(self, wave: Wave, envelope: Envelope) -> None:
        """Any other one."""
        self._gather_all(wave, wave.go_by(envelope))

    def _gather_all(self, wave: Wave, envelopes: list[Envelope]) -> None:
        if wave in self._holding:
            self._holding.pop(wave).cancel()
        for envelope in envelopes:
            self.gather(envelope)

    def _look(self, wave: Wave) -> None:
        if wave.goes_on():
            loop = asyncio.get_running_loop()
            self._holding[wave] = loop.call_later(LOOK_S, self._look, wave)
            return
        del self._holding[wave]
        for envelope in wave.release():
            self.gather(envelope)

    def _begin_delivery(self) -> None:
        self._delivery_due = True
        asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        """What one step makes of many is much more than they are, so the rest waits for a turn."""
        gathered, self._gathered = self._gathered, {}
        self._delivery_due = False
        for shard in self._waiting.keys() - gathered.keys():
            gathered[shard] = []
        for shard, envelopes in gathered.items():
            if shard in self._waiting or len(envelopes) > DELIVERED_MAX:
                gathered[shard] = self._next_of(shard, envelopes)
        if self._waiting:
            self._begin_delivery()
        for shard, envelopes in gathered.items():
            if envelopes:
                self.host.receive_all(shard, envelopes)

    def _next_of(self, shard: str, latest: list[Envelope]) -> list[Envelope]:
        """Those whose turn it is; what clients asked who are gone is dropped."""
        waiting = self._waiting.setdefault(shard, deque())
        waiting += latest
        clients, found = self._clients, list[Envelope]()
        while waiting and len(found) < DELIVERED_MAX:
            envelope = waiting.popleft()
            if type(envelope.message) not in FROM_CLIENTS or envelope.src in clients:
                found.append(envelope)
        if not waiting:
            del self._waiting[shard]
        return found

    def _stepped(self, replica: HostedReplica) -> None:
        if self.tails.waiting:
            self.tails.stepped(replica)

    # --- out -------------------------------------------------------------------------------------

    def send(self, envelope: Envelope) -> None:
        client = self._clients.get(envelope.dst)
        if client is not None:
            client.answer(envelope.message)
            return
        channel = self._channels.get(key_of(envelope))
        if channel is not None:
            channel.send(envelope.message)
        elif envelope.dst in self.addresses:
            self._link(envelope.dst).send(envelope)

    def _link(self, node: str) -> Link:
        link = self.links.get(node)
        if link is None:
            link = self.links[node] = Link(self, node)
        return link

    def raw_of(self, entries: tuple[Entry, ...]) -> list[Buffer]:
        """As they travel; followers that get the same are sent the same buffers."""
        if entries is not self._raw[0]:
            self._raw = (entries, join_entries(entries))
        return self._raw[1]

    def bind(self, key: Key, channel: Channel) -> None:
        self._channels[key] = channel

    def unbind(self, key: Key, channel: Channel) -> None:
        if self._channels.get(key) is channel:
            del self._channels[key]

    # --- clients ---------------------------------------------------------------------------------

    @property
    def channels(self) -> int:
        """Those of all clients."""
        return len(self._clients)

    def name_client(self, channel: ClientChannel) -> str:
        """A name that no node has, for the answers to find their way back."""
        self._named += 1
        name = f"client {self._named}"
        self._clients[name] = channel
        return name

    def join_wave(self, shard: str) -> Wave:
        wave = self._waves.setdefault(shard, Wave())
        wave.channels += 1
        return wave

    def leave_wave(self, shard: str) -> None:
        wave = self._waves[shard]
        wave.channels -= 1
        if not wave.channels:
            del self._waves[shard]

    def forget_client(self, name: str) -> None:
        del self._clients[name]

    def _refuse_all(self, shard: str) -> None:
        """The replica has stopped: nobody else will answer those who wait for it."""
        self.tails.refuse(shard)
        for client in list(self._clients.values()):
            if client.shard == shard:
                client.refuse_all()


class Accepted(Receiver):
    """A connection that somebody else opened: what it is shows when it has greeted us."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._port: Receiver

    def opened(self, connection: Connection) -> None:
        assert connection.hello is not None
        if connection.hello.role is Role.CLIENT:
            self._port = ClientPort(self._plane)
        else:
            self._port = Incoming(self._plane)
        self._port.opened(connection)

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        self._port.received(connection, frames)

    def drained(self, connection: Connection) -> None:
        self._port.drained(connection)

    def lost(self, connection: Connection, failure: TransportFailure | None) -> None:
        self._port.lost(connection, failure)
