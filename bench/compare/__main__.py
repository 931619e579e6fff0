from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import machine, yardstick
from .arithmetic import drifts
from .etcd import Etcd
from .kafka import Kafka, KafkaFlush
from .nats import Nats, NatsSync
from .page import Run, marks, replaced, section
from .plan import QUICK, TRIAL, WHOLE, Plan
from .plots import plots
from .shardlog import Shardlog, ShardlogRelaxed
from .system import System
from .table import ROWS, Column, cell
from .work import Worker

SYSTEMS: dict[str, type[System]] = {
    each.name: each for each in (Shardlog, ShardlogRelaxed, Kafka, KafkaFlush, Nats, NatsSync, Etcd)
}
DOCS = Path(__file__).parents[2] / "docs"
QUIET_WAIT_S = 120
EXIT_UNFIT = 3


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def compared(names: Sequence[str], plan: Plan, directory: Path) -> list[Column]:
    columns = []
    end = time.monotonic() + plan.total_s
    for name in names:
        system = SYSTEMS[name]()
        if time.monotonic() > end:
            columns.append(Column(name, system.title, system.syncs, {}, {}, "no time was left"))
            continue
        tell(f"{system.title} {system.version}")
        with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as within:
            outcome = Worker(system, plan, Path(within), tell).work()
        os.sync()  # what one has left to the kernel is not the next one's burden
        tell(f"{system.title}: {len(outcome.figures)} figures in {outcome.seconds:.0f} s")
        columns.append(
            Column(name, system.title, system.syncs, outcome.figures, outcome.missing,
                   outcome.failure)
        )  # fmt: skip
    return columns


def show(run: Run) -> None:
    console = Console()
    console.width = max(console.width, 170)
    shown = [run.bare, *run.columns]
    table = Table(*("what", "unit", *(each.title for each in shown)))
    for row in ROWS:
        table.add_row(row.title, row.unit, *(cell(each, row) for each in shown))
    console.print(table)
    for doubt in marks(run, machine.BUSY_MAX):
        console.print(f"to be doubted: {doubt}")


def main() -> int:
    arguments = argparse.ArgumentParser(prog="bench.compare")
    arguments.add_argument("directory", nargs="?", type=Path, default=Path(), help="on the disk")
    arguments.add_argument("--quick", action="store_true", help="at most 10 minutes, not 60")
    arguments.add_argument("--trial", action="store_true", help="does it work?")
    arguments.add_argument("--only", type=lambda text: text.split(","), default=list(SYSTEMS))
    arguments.add_argument("--anyway", action="store_true", help="on an unfit machine, too")
    arguments.add_argument("--json", type=Path, metavar="FILE")
    arguments.add_argument("--page", action="store_true", help="write docs/benchmarks.md and plots")
    given = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # servers end with us
    if unknown := set(given.only) - set(SYSTEMS):
        arguments.error(f"no such system: {', '.join(sorted(unknown))}")
    directory = given.directory.resolve()
    plan = TRIAL if given.trial else QUICK if given.quick else WHOLE
    small = machine.too_small(directory)
    share = machine.busy(0 if given.anyway else QUIET_WAIT_S)
    unfit = [*small, *([f"others use {share:.0%} of it"] if share > machine.BUSY_MAX else [])]
    if unfit and not given.anyway:
        tell(f"this machine is not fit for a comparison: {'; '.join(unfit)} (ANYWAY=1 goes on)")
        return EXIT_UNFIT
    begun = time.monotonic()
    try:
        tell("yardstick")
        before = yardstick.taken(directory, plan)
    except yardstick.NoYardstick as failure:
        tell(f"no yardstick, so no comparison: {failure}")
        return EXIT_UNFIT
    columns = compared(given.only, plan, directory)
    try:
        tell("yardstick")
        after = yardstick.taken(directory, plan)
    except yardstick.NoYardstick as failure:
        tell(f"no yardstick afterwards: {failure}")
        after = {}
    systems = {name: SYSTEMS[name]() for name in given.only}
    run = Run(
        machine=machine.described(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        minutes=(time.monotonic() - begun) / 60,
        quick=given.quick or given.trial,
        busy_before=share,
        versions={name: each.version for name, each in systems.items()},
        settings={name: each.settings for name, each in systems.items()},
        columns=columns,
        yardstick={name: (value + after.get(name, value)) / 2 for name, value in before.items()},
        drifts={n: by for n, by in drifts(before, after).items() if n in yardstick.DRIFT_OF},
        plan=plan,
        plots=plots(columns, DOCS / "benchmarks") if given.page else [],
    )
    show(run)
    told = json.dumps(
        {**asdict(run), "yardstick_before": before, "yardstick_after": after}, indent=1
    )
    if given.json is not None:
        given.json.write_text(told + "\n")
    if given.page:
        (DOCS / "benchmarks" / "compare.json").write_text(told + "\n")
        page = DOCS / "benchmarks.md"
        page.write_text(replaced(page.read_text(), section(run, machine.BUSY_MAX)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
