"""`shardlog storage verify`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli import exit_codes, storage_json
from shardlog.cli.storage_directories import inspections, refusals

if TYPE_CHECKING:
    from shardlog.storage.findings import Finding
    from shardlog.storage.inspection import Inspection


@dataclass(slots=True)
class Tally:
    """What was read, and what was found."""

    replicas: int = 0
    segments: int = 0
    entries: int = 0
    body_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_damage]


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="For a person, or for a program.")  # fmt: skip
@click.pass_context
def verify(ctx: click.Context, directory: str, output: str) -> None:
    """Read every byte that a replica relies on, and tell what is wrong.

    DIR is the directory of one replica, or one that holds several. Nothing in it is changed.

    Exit status 7 if something is damaged. What a crash leaves behind, to be finished or removed at
    the next start, is told too, but is no damage.
    """
    tally = Tally()
    with refusals():
        found = inspections(directory)
        with _progress(sum(each.size_bytes for each in found)) as progress:
            for inspection in found:
                with closing(inspection):
                    _read(inspection, tally, progress)
    if output == "json":
        click.echo(json.dumps(_as_json(tally), indent=2))
    else:
        for finding in tally.findings:
            click.secho(str(finding), fg="red" if finding.is_damage else None)
        click.echo(f"{directory}: {_summary(tally)}")
    ctx.exit(exit_codes.DAMAGED if tally.damage else exit_codes.OK)


def _read(inspection: Inspection, tally: Tally, progress: Callable[[int], None]) -> None:
    left = inspection.size_bytes
    for found in inspection.scan(bodies=True):
        if found.header.checksum:
            tally.entries += 1
            tally.body_bytes += found.length
        progress(found.length)
        left -= found.length
    progress(left)
    tally.replicas += 1
    tally.segments += sum(each.segment is not None for each in inspection.segments)
    tally.findings += inspection.findings


def _summary(tally: Tally) -> str:
    read = (
        f"{_counted(tally.replicas, 'replica')}, {_counted(tally.segments, 'segment')}, "
        f"{_counted(tally.entries, 'entry', 'entries')}, {tally.body_bytes:,} bytes of bodies: "
    )
    kinds = Counter(finding.consequence for finding in tally.findings)
    told = ", ".join(f"{count} {kind.value}" for kind, count in kinds.items())
    if tally.damage:
        return f"{read}damaged ({told})"
    return f"{read}all is well" + (f" ({told})" if told else "")


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _as_json(tally: Tally) -> storage_json.Json:
    return {
        "damaged": bool(tally.damage),
        "replicas": tally.replicas,
        "segments": tally.segments,
        "entries": tally.entries,
        "body_bytes": tally.body_bytes,
        "findings": [storage_json.finding(finding) for finding in tally.findings],
    }


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the error output, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("verifying"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("verifying", total=total)
        yield lambda done: bar.update(task, advance=done)
