"""The work that every system is given, and the figures that come of it.

A figure that cannot be had is missing with a reason, and the others go on.  A cluster is not asked
more than it has time for (`Plan.system_s`): what is left then says so.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .arithmetic import latency_ms, middle
from .plan import CONNECTIONS, RATE_HIGH, RATE_LOW, RECORD_BYTES, REPLICAS, Plan
from .programs import CannotBeHad
from .system import Failed, Running, System

DISK_BYTES_MIN = 8 << 30
READ_RECORDS_MAX = 4_000_000

Figures = dict[str, float]


@dataclass
class Outcome:
    """What a system did: figures by name, and why others are missing."""

    system: System
    figures: Figures = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    """Why there are none at all."""
    seconds: float = 0


def _asked(running: Running, pattern: str, **given: Any) -> Any:
    """An answer that has something to tell."""
    answer = running.ask(pattern, **given)
    if not answer.get("records", len(answer.get("latencies_us", ()))):
        raise Failed(f"{pattern}: nothing was acknowledged in time")
    return answer


class Worker:
    def __init__(
        self, system: System, plan: Plan, directory: Path, tell: Callable[[str], None]
    ) -> None:
        self.plan = plan
        self.directory = directory
        self.tell = tell
        self.outcome = Outcome(system)
        self.deadline = float("inf")

    def work(self) -> Outcome:
        begun = time.monotonic()
        try:
            with self._cluster(REPLICAS) as running:
                self.deadline = time.monotonic() + self.plan.system_s
                self._main(running)
                if not self.plan.fresh:
                    self._sizes(running)
                    self._shards(running)
                self._step("pause", lambda: self._pause(running))
            self._more()
        except Exception as failure:  # the others go on
            self.outcome.failure = self._told(failure)
            self.tell(f"{self.outcome.system.title}: {self.outcome.failure}")
        self.outcome.seconds = time.monotonic() - begun
        return self.outcome

    def _more(self) -> None:
        """What has a cluster of its own."""
        plan = self.plan
        if plan.fresh:
            self._in_cluster("sizes", REPLICAS, self._sizes)
        for replicas in plan.replicas:
            self._in_cluster(f"replicas_{replicas}", replicas, self._replicas)
        if plan.log_mib:
            self._in_cluster("log", REPLICAS, self._log_sizes)
        pauses = [self.outcome.figures["pause"]] if "pause" in self.outcome.figures else []
        for _ in range(1, plan.kills):
            self._in_cluster("pause", REPLICAS, lambda running: pauses.append(self._again(running)))
        if plan.fresh:  # the last: a thousand of them may take all the time there is
            self._in_cluster("shards", REPLICAS, self._shards)
        if pauses:
            ranked = sorted(pauses)
            self.outcome.figures["pause"] = ranked[len(ranked) // 2]
            self.outcome.figures["pause_worst"] = ranked[-1]

    @contextmanager
    def _cluster(self, replicas: int) -> Iterator[Running]:
        with (
            tempfile.TemporaryDirectory(dir=self.directory, ignore_cleanup_errors=True) as within,
            self.outcome.system.running(Path(within), replicas) as running,
        ):
            yield running

    def _in_cluster(self, name: str, replicas: int, work: Callable[[Running], object]) -> None:
        def within() -> Figures:
            with self._cluster(replicas) as running:
                work(running)
            return {}

        self._step(name, within)

    def _step(self, name: str, work: Callable[[], Figures]) -> None:
        if time.monotonic() > self.deadline:
            self.outcome.missing[name] = "no time was left"
            return
        if shutil.disk_usage(self.directory).free < DISK_BYTES_MIN:
            self.outcome.missing[name] = "no disk was left"
            return
        try:
            found = work()
        except Exception as failure:  # the other figures go on
            self.outcome.missing[name] = self._told(failure)
            self.tell(f"{self.outcome.system.title}, {name}: {self.outcome.missing[name]}")
        else:
            self.outcome.figures |= found

    def _told(self, failure: Exception) -> str:
        """In one line, and without a path of this machine."""
        text = (str(failure).strip().splitlines() or [""])[0].replace(str(self.directory), "")
        if isinstance(failure, CannotBeHad | Failed):
            return text
        return f"{type(failure).__name__}: {text}"

    # --- the middle ------------------------------------------------------------------------------

    def _main(self, running: Running) -> None:
        """What fills the disk comes last: the fastest leaves 40 GB on it."""
        plan = self.plan
        for log in ("bench", "cold", "large"):
            running.create(log)
        running.ask("saturated", log="bench", seconds=plan.warm_up_s)
        turns: list[tuple[str, Callable[[], Figures]]] = [
            ("independent", lambda: self._independent(running)),
            ("lone", lambda: self._lone(running)),
        ]
        for rate in plan.rates:
            turns.append((f"offered_{rate}", partial(self._offered, running, rate)))
        for name, work in turns:
            self._step(name, partial(self._turns, work))
        self._step("saturated_128", lambda: self._saturated(running))
        self._step("tail_saturated", partial(self._turns, lambda: self._tail(running)))
        large = partial(self._rate, running, "large", size=1024)
        self._step("saturated_1024", partial(self._turns, large))

    def _turns(self, work: Callable[[], Figures]) -> Figures:
        return middle([work() for _ in range(self.plan.turns)])

    def _saturated(self, running: Running) -> Figures:
        """Turns that fill the log which is read then."""
        found, records = [], 0
        for _ in range(self.plan.turns):
            before = running.used()
            answer = _asked(running, "saturated", log="cold", seconds=self.plan.seconds)
            after = running.used()
            records += answer["records_all"]
            millions = answer["records_all"] / 1e6
            found.append({
                "saturated_128": answer["records"] / answer["seconds"],
                "cpu_saturated": (after.cpu_s - before.cpu_s) / millions,
                "cpu_client": answer["client_cpu_s"] / millions,
                "resident": after.resident_mib,
            })  # fmt: skip
        self._step("cold_read", lambda: self._cold_read(running, records))
        return middle(found)

    def _cold_read(self, running: Running, records: int) -> Figures:
        running.forget_pages()
        count = min(records, READ_RECORDS_MAX)
        answer = _asked(running, "read", log="cold", seconds=self.plan.read_s, count=count)
        return {"cold_read": answer["records"] / answer["seconds"]}

    def _rate(self, running: Running, log: str, **given: Any) -> Figures:
        answer = _asked(running, "saturated", log=log, seconds=self.plan.seconds, **given)
        return {f"saturated_{given['size']}": answer["records"] / answer["seconds"]}

    def _independent(self, running: Running) -> Figures:
        given: dict[str, Any] = {
            "log": "bench", "seconds": self.plan.seconds, "connections": CONNECTIONS,
        }  # fmt: skip
        answer = _asked(running, "independent", **given)
        p50, p99, _ = latency_ms(answer["latencies_us"], answer["records"], 0)
        found = {
            "independent": answer["records"] / answer["seconds"],
            "independent_p50": p50, "independent_p99": p99,
        }  # fmt: skip
        if self.outcome.system.speaks_frames:
            bare = _asked(running, "independent-bare", **given)
            found["independent_bare"] = bare["records"] / bare["seconds"]
        return found

    def _lone(self, running: Running) -> Figures:
        answer = _asked(running, "lone", log="bench", seconds=self.plan.seconds)
        p50, p99, _ = latency_ms(answer["latencies_us"], answer["records"], 0)
        return {"lone_p50": p50, "lone_p99": p99}

    def _offered(self, running: Running, rate: int) -> Figures:
        tail = rate == RATE_LOW
        before = running.used()
        answer = _asked(
            running, "offered", log="bench", seconds=self.plan.seconds, rate=rate, tail=tail
        )
        after = running.used()
        waited_us = answer["seconds"] * 1e6
        p50, p99, p999 = latency_ms(answer["latencies_us"], answer["due"], waited_us)
        name = f"offered_{rate}"
        found = {f"{name}_p50": p50, f"{name}_p99": p99, f"{name}_p999": p999}
        found[f"{name}_reached"] = len(answer["latencies_us"]) / answer["seconds"]
        if rate == RATE_HIGH:
            found["cpu_offered"] = (after.cpu_s - before.cpu_s) / answer["records_all"] * 1e6
        if tail:
            p50, p99, _ = latency_ms(answer["tail_us"], answer["due"], waited_us)
            found |= {"tail_p50": p50, "tail_p99": p99}
        return found

    def _tail(self, running: Running) -> Figures:
        answer = _asked(running, "saturated", log="bench", seconds=self.plan.seconds, tail=True)
        read, written = answer["read_records"], answer["records"]
        return {
            "tail_saturated": read / answer["seconds"],
            "tail_share": read / written if written else 0.0,
        }

    def _pause(self, running: Running) -> Figures:
        return {"pause": running.pause_s("bench", self.plan.pause_s)}

    def _again(self, running: Running) -> float:
        running.create("bench")
        return self._pause(running)["pause"]

    # --- one factor at a time --------------------------------------------------------------------

    def _sizes(self, running: Running) -> None:
        running.create("sizes")
        for size in self.plan.sizes:
            self._step(f"size_{size}", partial(self._size, running, size))

    def _size(self, running: Running, size: int) -> Figures:
        before = running.used()
        answer = _asked(running, "saturated", log="sizes", seconds=self.plan.seconds, size=size)
        used_s = running.used().cpu_s - before.cpu_s
        rate = answer["records"] / answer["seconds"]
        cpu = used_s / answer["records_all"] * 1e6
        return {f"size_{size}": rate * size / 1e6, f"size_{size}_cpu": cpu}

    def _shards(self, running: Running) -> None:
        for shards in self.plan.shards:
            self._step(f"shards_{shards}", partial(self._sharded, running, shards))

    def _sharded(self, running: Running, shards: int) -> Figures:
        if not self.outcome.system.has_shards:
            raise Failed("has none")
        log = f"many{shards}"
        begun = time.monotonic()
        running.create(log, shards)
        creating_s = time.monotonic() - begun
        before = running.used()
        warm_up_s = max(1, shards // 100)  # a producer of each has to find its shard first
        answer = _asked(running, "saturated", log=log, seconds=self.plan.seconds, shards=shards,
                        warm_up=warm_up_s)  # fmt: skip
        after = running.used()
        return {
            f"shards_{shards}": answer["records"] / answer["seconds"],
            f"shards_{shards}_cpu": (after.cpu_s - before.cpu_s) / answer["records_all"] * 1e6,
            f"shards_{shards}_create_s": creating_s,
            f"shards_{shards}_resident": after.resident_mib,
        }

    def _replicas(self, running: Running) -> None:
        count = running.replicas
        running.create("bench")
        running.ask("saturated", log="bench", seconds=self.plan.warm_up_s)

        def rate() -> Figures:
            before = running.used()
            answer = _asked(running, "saturated", log="bench", seconds=self.plan.seconds)
            used_s = running.used().cpu_s - before.cpu_s
            return {
                f"replicas_{count}": answer["records"] / answer["seconds"],
                f"replicas_{count}_cpu": used_s / answer["records_all"] * 1e6,
            }

        def latency() -> Figures:
            found = self._offered(running, RATE_LOW)
            return {f"replicas_{count}_p99": found[f"offered_{RATE_LOW}_p99"]}

        self._step(f"replicas_{count}", rate)
        self._step(f"replicas_{count}_p99", latency)

    def _log_sizes(self, running: Running) -> None:
        """What a log that has grown makes of appends to it, and of memory."""
        running.create("bench")
        written = 0.0
        for mib in self.plan.log_mib:

            def grown(mib: int = mib) -> Figures:
                nonlocal written
                deadline = time.monotonic() + self.plan.system_s / 6
                while written < mib and time.monotonic() < deadline:
                    answer = _asked(running, "saturated", log="bench", seconds=1, size=1024)
                    written += answer["records_all"] * 1024 / (1 << 20)
                if written < mib:
                    raise Failed("could not be written in time")
                answer = _asked(running, "saturated", log="bench", seconds=1, size=RECORD_BYTES)
                return {
                    f"log_{mib}": answer["records"] / answer["seconds"],
                    f"log_{mib}_resident": running.used().resident_mib,
                }

            self._step(f"log_{mib}", grown)
