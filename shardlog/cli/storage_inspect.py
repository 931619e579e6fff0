"""`shardlog storage inspect`."""

from __future__ import annotations

import json
from collections import deque
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli import storage_json
from shardlog.cli.storage_directories import inspections, refusals
from shardlog.cli.storage_tables import STATE_COLOURS, show

if TYPE_CHECKING:
    from shardlog.storage.findings import Found
    from shardlog.storage.inspection import Inspection
    from shardlog.storage.root import Root

ENTRY_COLUMNS = "{:>7} {:>12} {:>6} {:12} {:>10} {:>8} {:24} {:>10}  "


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--entries", is_flag=True, help="List every entry; reads and verifies all bodies.")
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="For a person, or for a program.")  # fmt: skip
def inspect(directory: str, entries: bool, output: str) -> None:
    """Show what a replica's files say.

    DIR is the directory of one replica, or one that holds several. Nothing in it is changed.
    """
    with refusals():
        if output == "json":
            told = [_as_json(each, entries) for each in inspections(directory)]
            click.echo(json.dumps({"replicas": told}, indent=2))
            return
        for number, inspection in enumerate(inspections(directory)):
            if number:
                click.echo()
            with closing(inspection):
                _show(inspection)
            if entries:
                _list_entries(inspection.directory)


def _as_json(inspection: Inspection, entries: bool) -> storage_json.Json:
    with closing(inspection):
        if not entries:
            deque(inspection.scan(bodies=False), maxlen=0)
            return storage_json.replica(inspection)
        listed = [storage_json.entry(found) for found in inspection.scan(bodies=True)]
        return storage_json.replica(inspection) | {"entries": listed}


def _show(inspection: Inspection) -> None:
    deque(inspection.scan(bodies=False), maxlen=0)
    click.secho(inspection.directory, bold=True)
    if inspection.root is not None:
        for name, value in _facts(inspection, inspection.root):
            click.echo(f"  {name:16} {value}")
        rows = [
            (str(it.sequence), it.type.name, str(it.number), str(it.epoch), str(it.offset))
            for it in inspection.root.records
        ]
        show("control records", "sequence> type number> epoch> offset>", rows)
    if inspection.places:
        places = [
            (str(place.number), str(place.position), _or_dash(place.sequence), place.state)
            for place in inspection.places
        ]
        show("superblock", "place> position> sequence> state", places)
    if inspection.segments:
        show("segments", "file first> end> entries> used> size> state", _segments(inspection))
    if inspection.findings:
        click.echo("\nfindings (verify reads the bodies too)")
        for finding in inspection.findings:
            click.secho(f"  {finding}", fg="red" if finding.is_damage else None)


def _facts(inspection: Inspection, root: Root) -> list[tuple[str, str]]:
    from shardlog.protocol.history import written
    from shardlog.storage.layout import FORMAT_VERSION

    block, context = root.superblock, inspection.context
    riding = f"{context.end} ({storage_json.checksum(context.checksum)})"
    facts = [
        ("shard", root.shard),
        ("node", f"{root.node} #{block.incarnation}"),
        ("format", f"version {FORMAT_VERSION}, lineage {root.lineage}"),
        ("epoch", f"{block.epoch}, led {block.led}"),
        ("history", written(block.history)),
        ("first offset", f"{root.first} ({storage_json.checksum(root.boundary)})"),
        ("commit context", f"{block.commit} in the superblock, {riding} with the entries"),
        ("sessions", f"{len(block.sessions)}, folded up to offset {block.sessions_at}"),
    ]
    if root.cut_to is not None:
        facts.append(("cut under way", f"to offset {root.cut_to}"))
    if block.in_doubt:
        facts.append(("in doubt", f"{block.in_doubt} entries of the log before"))
    if block.syncing is not None:
        span = f"[{block.syncing.first}, {block.syncing.end})"
        facts.append(("installing", f"snapshot {span} from {block.syncing.source}"))
    return facts


def _segments(inspection: Inspection) -> list[tuple[str, ...]]:
    rows = []
    for summary in inspection.segments:
        told = storage_json.segment(inspection, summary)
        numbers = [told[key] for key in ("first", "end", "entries", "used_bytes", "size_bytes")]
        rows.append((str(told["file"]), *map(_or_dash, numbers), str(told["state"])))
    return rows


def _list_entries(directory: str) -> None:
    """One line after the other: a log may be longer than memory."""
    names = ("epoch", "offset", "count", "kind", "session", "request", "time", "bytes")
    click.echo(f"\nentries\n{ENTRY_COLUMNS.format(*names)}state")
    (inspection,) = inspections(directory)
    with closing(inspection):
        for found in inspection.scan(bodies=True):
            _tell_entry(found)


def _tell_entry(found: Found) -> None:
    header, state = found.header, found.mark.name.lower()
    cells: tuple[int | str, ...]
    if header.checksum:
        cells = (
            header.epoch, header.base, header.count, header.kind.name, header.session,
            header.request, _time(header.timestamp_ms), found.length,
        )  # fmt: skip
    else:
        cells = (header.epoch, header.base, header.count or "?", "-", "-", "-", "-", "-")
    click.echo(ENTRY_COLUMNS.format(*cells) + click.style(state, fg=STATE_COLOURS.get(state)))


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
