"""The network: it delays, loses, repeats, reorders and holds back, and never alters.

A link is one direction between two named ends.  Four things can be wrong with it, each by
itself: it may be *cut* (what is sent is lost), *thin* (the stream of entries is stuck and the rest
comes through, on connections of its own), *clogged* (what is sent is held back and comes
later, in order or not), or merely bad (each message takes its chances).  Cutting both directions
between two groups of ends is a split; cutting one direction is what TCP keepalives overlook.

Messages of one link arrive in the order of sending unless chance reorders them, as on TCP, with
the reordering standing for reconnects.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shardlog.protocol.messages import Entries, Envelope, Refused
from shardlog.sim.scheduler import Scheduler

ECHO_US = (50_000, 4_000_000)
ECHOES = 3

Receiver = Callable[[Envelope], None]


class Link:
    """One direction between two ends."""

    __slots__ = ("arrives_us", "cuts", "delay_us", "held", "thin")

    def __init__(self, delay_us: int) -> None:
        self.delay_us = delay_us
        # When the latest message that kept its place arrives.
        self.arrives_us = 0
        # How many cuts hold; several may overlap.
        self.cuts = 0
        # How many faults make it thin.
        self.thin = 0
        # What a clog holds back; None if the link is not clogged.
        self.held: list[Envelope] | None = None


class Network:
    """Delivery between all ends of a world."""

    __slots__ = (
        "delay_us",
        "delivered",
        "duplicate",
        "echo",
        "echoing",
        "ends",
        "links",
        "loss",
        "lost",
        "random",
        "reorder",
        "scheduler",
        "sent",
        "watchers",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        delay_us: int,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        echo: float = 0.0,
        echoing: Random | None = None,
    ) -> None:
        # How often a refusal is repeated long after, and by which draws.
        self.echo = echo
        self.echoing = echoing or Random(0)
        self.scheduler = scheduler
        self.random = random
        self.delay_us = delay_us
        self.loss = loss
        self.duplicate = duplicate
        self.reorder = reorder
        self.ends: dict[str, Receiver] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.watchers: list[Receiver] = []
        self.sent = 0
        self.delivered = 0
        self.lost = 0

    def attach(self, name: str, receiver: Receiver) -> None:
        """`receiver` is called for every message that reaches `name`, up or not."""
        self.ends[name] = receiver

    def link(self, src: str, dst: str) -> Link:
        found = self.links.get((src, dst))
        if found is None:
            found = Link(int(self.delay_us * (0.5 + self.random.random())))
            self.links[src, dst] = found
        return found

    def send(self, envelope: Envelope) -> None:
        self.sent += 1
        for watch in self.watchers:
            watch(envelope)
        link = self.links.get((envelope.src, envelope.dst)) or self.link(envelope.src, envelope.dst)
        if link.cuts:
            self.lost += 1
            return
        if link.thin and type(envelope.message) is Entries:
            self.lost += 1
            return
        if link.held is not None:
            link.held.append(envelope)
            return
        fate = self.random.random()
        if fate < self.loss:
            self.lost += 1
            return
        if self.echo and type(envelope.message) is Refused:
            self._repeat_later(envelope)
        if fate > 1.0 - self.duplicate:
            self._carry(link, envelope)
        self._carry(link, envelope)

    def _carry(self, link: Link, envelope: Envelope) -> None:
        chance = self.random.random()
        arrives = self.scheduler.now_us + int(link.delay_us * (0.5 + chance))
        if self.reorder and self.random.random() < self.reorder:
            arrives += int(link.delay_us * 8 * self.random.random())
        elif arrives <= link.arrives_us:
            link.arrives_us = arrives = link.arrives_us + 1
        else:
            link.arrives_us = arrives
        self.scheduler.at(arrives, self._deliver, envelope)

    def _repeat_later(self, envelope: Envelope) -> None:
        """As if the answers to several requests had been held up somewhere."""
        if self.echoing.random() < self.echo:
            after_us = self.echoing.randint(*ECHO_US)
            for number in range(ECHOES):
                arrives = self.scheduler.now_us + after_us + number
                self.scheduler.at(arrives, self._deliver, envelope)

    def _deliver(self, envelope: Envelope) -> None:
        self.delivered += 1
        self.ends[envelope.dst](envelope)

    # --- the adversary's side --------------------------------------------------------------------

    def cut(self, links: list[tuple[str, str]]) -> None:
        for src, dst in links:
            self.link(src, dst).cuts += 1

    def mend(self, links: list[tuple[str, str]]) -> None:
        """Undo one `cut` of the same links; healing everything may have come first."""
        for src, dst in links:
            link = self.link(src, dst)
            link.cuts = max(link.cuts - 1, 0)

    def make_thin(self, links: list[tuple[str, str]]) -> None:
        for src, dst in links:
            self.link(src, dst).thin += 1

    def widen(self, links: list[tuple[str, str]]) -> None:
        """Undo one `make_thin` of the same links."""
        for src, dst in links:
            link = self.link(src, dst)
            link.thin = max(link.thin - 1, 0)

    def clog(self, src: str, dst: str) -> None:
        link = self.link(src, dst)
        if link.held is None:
            link.held = []

    def unclog(self, src: str, dst: str, in_order: bool = True) -> None:
        """Everything held back comes now, in order or not."""
        link = self.link(src, dst)
        held, link.held = link.held, None
        if held and not in_order:
            self.random.shuffle(held)
        for envelope in held or ():
            self._carry(link, envelope)

    def heal(self) -> None:
        """All links are whole and lossless from now on."""
        self.loss = self.duplicate = self.reorder = self.echo = 0.0
        for (src, dst), link in self.links.items():
            link.cuts = link.thin = 0
            if link.held is not None:
                self.unclog(src, dst)
