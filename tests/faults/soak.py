"""`make soak`: real processes under load, whose files are damaged, and what became of it.

    PYTHONPATH=tests python -m faults.soak --minutes 10 --seed 7

Ends with status 1 if something was lost, doubled, moved, or is not the same everywhere; the
directory with all logs and volumes is kept then.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from shutil import rmtree

from faults.cluster import FaultCluster, until_true
from faults.history import Fate
from faults.load import Load
from faults.nursery import Nursery
from faults.ordeal import SHARD, Ordeal, live_through
from faults.torment import SETTINGS, Torment

RECORD_BYTES = 400
PAUSE_MS = 100
REREADERS = 2
FAULTS_PER_MINUTE = 20
"""The least: a run goes on past its time until there were so many, 200 in the usual 10 minutes."""
ROUNDS_AFTER = 2
"""So many whole rounds of every scrubber follow on the last fault."""


class Soak:
    """`run` to the end; `torment` and `ordeal` have the figures then."""

    def __init__(self, directory: Path, seed: int, nursery: Nursery, nodes: int = 3) -> None:
        self.cluster = FaultCluster(directory, nodes=nodes, settings=SETTINGS, nursery=nursery)
        load = Load(
            self.cluster, SHARD, seed,
            rereaders=REREADERS, record_bytes=RECORD_BYTES, pause_ms=PAUSE_MS,
        )  # fmt: skip
        self.ordeal = Ordeal(self.cluster, load, Random(seed))
        self.torment = Torment(self.ordeal, self._tell)
        self.replicas = nodes
        self.log = directory / "faults.log"
        self._began = time.monotonic()

    def run(self, enough: Callable[[Torment], bool]) -> None:
        async def doing(ordeal: Ordeal) -> None:
            await self.torment.run(lambda: enough(self.torment))
            await self._scrubbed()

        asyncio.run(live_through(self.ordeal, doing, self.replicas))

    def _tell(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{time.monotonic() - self._began:8.2f} {line}\n")

    async def _scrubbed(self) -> None:
        """Faults have stopped: everybody has looked at everything again, and nothing is bad."""
        self._tell("faults stop")
        before = {node: await self._rounds(node) for node in self.cluster.nodes}

        async def clean() -> bool:
            for node, rounds in before.items():
                figures = await self.cluster.metrics(node)
                now = figures.get(of_shard("shardlog_scrub_rounds_total"), 0)
                if now < rounds:
                    before[node] = now  # its replica was opened anew
                bad = figures.get(of_shard("shardlog_entries_bad"), 1)
                if bad or now < before[node] + ROUNDS_AFTER:
                    return False
            return True

        await until_true(clean, "something stays bad")
        self._tell("everything has been scrubbed")

    async def _rounds(self, node: str) -> float:
        figures = await self.cluster.metrics(node)
        return figures.get(of_shard("shardlog_scrub_rounds_total"), 0)


def of_shard(name: str) -> str:
    return f'{name}{{shard="{SHARD}"}}'


# --- figures -------------------------------------------------------------------------------------


def table(soak: Soak) -> str:
    torment, ordeal, cluster = soak.torment, soak.ordeal, soak.cluster
    history = ordeal.load.history
    found: dict[str, int] = dict.fromkeys(("recovery", "read", "scrub"), 0)
    repaired = mended = 0
    for node in cluster.nodes:
        for event in cluster.told(node, "damage found"):
            found[event["by"]] += event["entries"]
        for event in cluster.told(node, "damage repaired"):
            repaired += event["entries"]
            mended += event.get("copies", 0)
    rows: list[tuple[str, object]] = [
        *sorted(torment.faults.items()),
        ("faults in all", torment.total),
        *sorted(torment.besides.items()),
        ("found bad by recovery", found["recovery"]),
        ("found bad by a read", found["read"]),
        ("found bad by the scrubber", found["scrub"]),
        ("entries and slots written anew", repaired),
        ("copies of superblock and heads written anew", mended),
        ("epochs", ordeal.epochs),
        ("incarnations", len(torment.incarnations)),
        ("records sent", len(history.sent)),
        ("records acknowledged", len(history.with_fate(Fate.ACKNOWLEDGED))),
        ("records of unknown fate", len(history.with_fate(Fate.UNKNOWN))),
        ("records read in the end", len(history.log)),
        ("confirmed reads", len(history.reads)),
        ("reads of old records", len(history.rereads)),
    ]
    return "\n".join(f"{name:55} {value:>9}" for name, value in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="for how long files are damaged")
    parser.add_argument(
        "--faults",
        type=int,
        help=f"and at least so many times; if not given, {FAULTS_PER_MINUTE} a minute",
    )
    parser.add_argument("--seed", type=int, default=1, help="chooses what is damaged, and when")
    parser.add_argument("--nodes", type=int, default=3, help="replicas of the shard")
    asked = parser.parse_args()
    least = round(asked.minutes * FAULTS_PER_MINUTE) if asked.faults is None else asked.faults
    directory = Path(tempfile.mkdtemp(prefix="shardlog-soak-"))
    began = time.monotonic()

    def enough(torment: Torment) -> bool:
        passed = time.monotonic() - began >= asked.minutes * 60
        return passed and torment.total >= least

    try:
        with Nursery.open() as nursery:
            soak = Soak(directory / "cluster", asked.seed, nursery, asked.nodes)
            soak.run(enough)
    except BaseException as failure:
        again = f"--minutes {asked.minutes:g} --seed {asked.seed} --nodes {asked.nodes}"
        again += f" --faults {least}"
        print(f"everything is in {directory}; what was done in its cluster/faults.log")
        print(f"again: PYTHONPATH=tests python -m faults.soak {again}", flush=True)
        if isinstance(failure, AssertionError):
            print(failure)
            return 1
        raise
    print(f"seed {asked.seed}, {asked.nodes} nodes, {(time.monotonic() - began) / 60:.1f} minutes")
    print(table(soak))
    rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
