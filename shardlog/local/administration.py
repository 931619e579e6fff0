"""What people may ask of a cluster, whatever way they ask: create, scale, delete, operate, look.

Commands go to the coordinator machine, which alone decides; here is only what a machine that sees
one shard cannot know: which nodes there are, and how many replicas shall be.  Scaling is driven by
levels: whenever a shard has another number of replicas than it shall have, the next step is taken.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from shardlog.coordinator.commanding import Commander
from shardlog.coordinator.driver import Control
from shardlog.coordinator.host import CoordinatorHost
from shardlog.coordinator.reporting import ask_member, ask_members
from shardlog.coordinator.scaling import TooFewNodes, choose_nodes, count_replicas, next_command
from shardlog.local.wanted import WantedReplicas
from shardlog.metadata.failures import Unavailable
from shardlog.protocol.coordination import (
    AbortChange,
    Command,
    CreateShard,
    DeleteShard,
    Rejected,
    SetRetention,
    Swap,
    TrimShard,
)
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.upkeep import USUAL, Upkeep

SCALE_MS = 100
REPLICAS_MAX = 31
SHARD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


class AdministrationFailure(Exception):  # noqa: N818 - named after what happened
    """Base of all; the message is one line for a person."""


class BadRequest(AdministrationFailure):
    """It makes no sense, whatever the cluster looks like."""


class NoSuchShard(AdministrationFailure):
    def __init__(self, shard: str) -> None:
        super().__init__(f"there is no shard {shard}")


class ShardExists(AdministrationFailure):
    def __init__(self, shard: str) -> None:
        super().__init__(f"the shard {shard} exists")


class NotNow(AdministrationFailure):
    """The cluster, as it is, does not allow it."""


class Administration:
    """`nodes` tells which nodes there are, `alive` which of them may host replicas now."""

    def __init__(
        self,
        host: CoordinatorHost,
        control: Control,
        wanted: WantedReplicas,
        nodes: Callable[[], Sequence[str]],
        alive: Callable[[], Sequence[str]],
    ) -> None:
        self.host = host
        self.control = control
        self.wanted = wanted
        self.nodes = nodes
        self.alive = alive
        self.commander = Commander(host)

    # --- looking ---------------------------------------------------------------------------------

    def shard(self, name: str) -> Shard:
        found = self.host.shards.get(name)
        if found is None:
            raise self._unreadable(name) or NoSuchShard(name)
        return found

    def replicas_wanted(self, shard: Shard) -> int:
        return self.wanted.numbers.get(shard.name, len(shard.final_ensemble))

    def trouble(self, shard: Shard) -> str | None:
        """Why nothing more is done for a shard."""
        stopped = self.host.stopped.get(shard.name)
        return shard.halted or (str(stopped) if stopped else None)

    async def reports(self, shard: Shard) -> list[StatusReport]:
        """What the replicas themselves say, of those that answer."""
        return await ask_members(self.host.name, self.control, shard)

    # --- asking ----------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        replicas: int,
        quorum: QuorumPolicy,
        nodes: Sequence[str] | None,
        upkeep: Upkeep = USUAL,
    ) -> Shard:
        """On `nodes`, or on those with the fewest replicas."""
        if not SHARD_NAME.fullmatch(name):
            raise BadRequest(
                f"{name!r:.80} is no name of a shard: 1 to 63 of a-z, 0-9, - and ., the first and "
                "the last a letter or digit"
            )
        _require_replicas(replicas)
        if name in self.host.shards:
            raise ShardExists(name)
        if nodes is None:
            try:
                hosting = count_replicas(self.host.shards.values())
                nodes = choose_nodes(replicas, self.nodes(), hosting)
            except TooFewNodes as failure:
                raise NotNow(str(failure)) from failure
        self._require_nodes(nodes)
        await self.wanted.write(name, None)
        await self.command(name, CreateShard(tuple(nodes), quorum, upkeep))
        return self.shard(name)

    async def scale(self, name: str, replicas: int) -> Shard:
        """Only writes down what is wanted; `run` does it."""
        shard = self.shard(name)
        _require_replicas(replicas)
        if shard.status is Status.DELETING:
            raise NotNow(f"the shard {name} is being deleted")
        if replicas == self.replicas_wanted(shard):
            return shard
        if shard.change or shard.joining or self.replicas_wanted(shard) != len(shard.ensemble):
            raise NotNow("a reconfiguration is in progress: wait, or abort it")
        if replicas > len(self.nodes()):
            raise NotNow(str(TooFewNodes(replicas, len(self.nodes()))))
        await self.wanted.write(name, replicas)
        return shard

    async def retain(self, name: str, bytes_max: int, time_ms: int) -> Shard:
        """From now on keep so much, for so long; 0 is no bound."""
        shard = self.shard(name)
        await self.command(name, SetRetention(bytes_max, time_ms))
        return self.host.shards.get(name, shard)

    async def operate(self, name: str, command: Command) -> Shard:
        shard = self.shard(name)
        if isinstance(command, Swap):
            self._require_nodes([command.new])
        if isinstance(command, AbortChange):
            return await self._abort(shard)
        if isinstance(command, TrimShard):
            await self._require_within(shard, command.first)
        await self.command(name, command)
        return self.host.shards.get(name, shard)

    async def _require_within(self, shard: Shard, first: int) -> None:
        """Raises `NotNow` for an offset behind the end: it would drop all but the last entry."""
        if shard.leader is None:
            return  # the command is refused for that
        report = await ask_member(self.host.name, self.control, shard, shard.leader)
        if report is None:
            raise NotNow(f"the leader of {shard.name} does not say where its log ends: try again")
        if first > report.end:
            raise NotNow(f"{shard.name} ends at offset {report.end}: {first} is beyond that")

    async def _abort(self, shard: Shard) -> Shard:
        """What is given up is not wanted any more either, or it would be begun again."""
        was_scaling = self.replicas_wanted(shard) != len(shard.ensemble)
        if shard.change or shard.joining or not was_scaling:
            await self.command(shard.name, AbortChange())
        if was_scaling:
            await self.wanted.write(shard.name, None)
        return self.host.shards.get(shard.name, shard)

    async def delete(self, name: str) -> Shard:
        shard = self.shard(name)
        if shard.status is not Status.DELETING:
            await self.command(name, DeleteShard())
            await self.wanted.write(name, None)
        return self.host.shards.get(name, shard)

    async def command(self, name: str, command: Command) -> None:
        answer = await self.commander.command(name, command)
        if isinstance(answer, Rejected):
            raise NotNow(answer.reason)

    def _require_nodes(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            if node not in self.nodes():
                raise BadRequest(f"there is no node {node!r:.80}")

    def _unreadable(self, name: str) -> NotNow | None:
        problem = self.host.unreadable.get(name)
        return NotNow(str(problem)) if problem else None

    # --- scaling ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Bring every shard to the number of replicas that it shall have."""
        while True:
            for name, wanted in list(self.wanted.numbers.items()):
                shard = self.host.shards.get(name)
                if shard is not None and not self.commander.is_busy(name):
                    await self._scale_on(shard, wanted)
            await asyncio.sleep(SCALE_MS / 1000)

    async def _scale_on(self, shard: Shard, wanted: int) -> None:
        hosting = count_replicas(self.host.shards.values())
        command = next_command(shard, wanted, self.alive(), hosting)
        if command is None:
            return
        try:
            await self.command(shard.name, command)
        except (NotNow, Unavailable):
            # The shard is looked at again in a moment, as it is then.
            return


def _require_replicas(replicas: int) -> None:
    if not 1 <= replicas <= REPLICAS_MAX:
        raise BadRequest(f"{replicas} replicas: from 1 to {REPLICAS_MAX} are possible")
