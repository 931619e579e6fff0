"""`shardlog sim demo`: watch a shard survive."""

from __future__ import annotations

import rich_click as click

from shardlog.cli import exit_codes
from shardlog.cli.sim_run import EXIT_CODES

COLOURS = {"fault": "red", "elected": "green", "change": "cyan", "create": "green"}


@click.command()
@click.option("--seed", default=7, show_default=True, help="Another seed is another story.")
@click.pass_context
def demo(ctx: click.Context, seed: int) -> None:
    """Watch a shard live through crashes, cuts and bad disks, and lose nothing."""
    from shardlog.sim.runner import run_options
    from shardlog.sim.story import Narrator, story_options

    narrator = Narrator(_tell)
    outcome = run_options(story_options(seed), [narrator])
    if outcome.kind:
        click.echo(f"seed {seed}: {outcome.kind}: {outcome.text}", err=True)
        ctx.exit(EXIT_CODES[outcome.kind])
    tally, seen = narrator.tally, outcome.statistics
    changes = sum(count for kind, count in seen.changes.items() if kind != "abort")
    lost = tally.acknowledged - tally.found - tally.trimmed
    rows = [
        ("messages delivered", f"{seen.messages:,}"),
        (
            "crashes, disk faults, lost disks",
            f"{seen.crashes}, {seen.disk_faults}, {seen.lost_disks}",
        ),
        ("elections", f"{seen.elections}"),
        ("reconfigurations finished", f"{changes}"),
        ("records acknowledged", f"{tally.records:,} in {tally.acknowledged:,} batches"),
        ("longest pause without an ack", f"{tally.longest_pause_us / 1e6:.2f} s"),
        ("found again, intact", f"{tally.found:,} ({tally.trimmed} trimmed on purpose)"),
        ("acknowledged and lost", f"{lost}"),
        ("client history", "linearizable" if tally.linearizable else "NOT LINEARIZABLE"),
        ("replicas at the end", "equal, every copy intact" if tally.equal else "NOT EQUAL"),
    ]
    click.echo()
    for label, value in rows:
        click.echo(f"  {label:34} {click.style(value, bold=True)}")
    click.echo(
        f"\n  Every invariant was checked after every step ({outcome.seconds:.1f} s).\n"
        f"  The same story again, byte for byte: shardlog sim demo --seed {seed}"
    )
    good = not lost and tally.linearizable and tally.equal
    ctx.exit(exit_codes.OK if good else exit_codes.SAFETY)


def _tell(seconds: float, topic: str, text: str) -> None:
    label = click.style(f"{topic:8}", fg=COLOURS.get(topic))
    click.echo(f"{seconds:7.2f} s  {label} {text}")
