"""What a checker or a recorder may watch.  Observers look; they change nothing and draw nothing.

Calls are made only to methods that an observer overrides, so a run without a recorder does not
pay for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardlog.protocol.coordination import CoordinatorEffect, CoordinatorEvent
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Effect, Event
from shardlog.protocol.messages import Envelope
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.sim.linearizability import Operation

if TYPE_CHECKING:
    from shardlog.sim.world import World


class Observer:
    """Override what you want to see."""

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        """A replica took a step; its effects have not been performed yet."""

    def on_coordinator(
        self,
        world: World,
        name: str,
        coordinator: Coordinator,
        event: CoordinatorEvent,
        effects: Sequence[CoordinatorEffect],
    ) -> None:
        """A coordinator took a step; its effects have not been performed yet."""

    def on_send(self, world: World, envelope: Envelope) -> None:
        """A message leaves; it may get lost."""

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        """A compare-and-swap succeeded."""

    def on_restore(self, world: World, shard: Shard) -> None:
        """The metadata store was set back: this is the record that stands now."""

    def on_reply(self, world: World, client: int, operation: Operation) -> None:
        """A client learned a result."""

    def on_crash(self, world: World, name: str) -> None:
        """A node or a coordinator stopped; what it had not synced is decided already."""

    def on_restart(self, world: World, name: str) -> None:
        """A node or a coordinator is up again and has taken no step yet."""

    def on_wipe(self, world: World, name: str) -> None:
        """A node that is down lost its disk."""

    def on_fault(self, world: World, text: str) -> None:
        """The adversary did something; for people."""

    def on_end(self, world: World) -> None:
        """The run is over and nothing failed: the time for whole-history checks."""
