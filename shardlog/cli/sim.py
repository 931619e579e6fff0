"""`shardlog sim`: the simulator on the command line.  Each command has a module of its own."""

from __future__ import annotations

import rich_click as click

from shardlog.cli.sim_demo import demo
from shardlog.cli.sim_explore import explore
from shardlog.cli.sim_mutants import mutants
from shardlog.cli.sim_run import replay, run


@click.group()
def sim() -> None:
    """Run the shard under a deterministic simulator.

    One seed decides everything; a seed that fails replays byte for byte.
    """


sim.add_command(run)
sim.add_command(replay)
sim.add_command(mutants)
sim.add_command(demo)
sim.add_command(explore)
