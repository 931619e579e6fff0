"""The figures to reach, each as a ratio within the run or a bound, and whether they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .table import NONE, OURS, SUSTAINED_MIN, Column


@dataclass(frozen=True, slots=True)
class Aim:
    text: str
    measured: float | None
    least: float | None = None
    most: float | None = None
    unit: str = ""

    @property
    def met(self) -> bool | None:
        """None: it could not be measured."""
        if self.measured is None:
            return None
        above = self.least is None or self.measured >= self.least
        return above and (self.most is None or self.measured <= self.most)


def aims(columns: Sequence[Column], bare: Mapping[str, float]) -> list[Aim]:
    by_name = {each.name: each.figures for each in columns}
    ours = by_name.get(OURS, {})

    def times(figure: str, name: str, theirs: str | None = None) -> float | None:
        return _divided(ours.get(figure), by_name.get(name, {}).get(theirs or figure))

    syncing = [each.figures for each in columns if each.syncs and not each.name.startswith(OURS)]
    others = [each.figures for each in columns if not each.name.startswith(OURS)]
    saturated = "saturated append of 128 B against"
    return [
        Aim(f"{saturated} Kafka without a sync", times("saturated_128", "kafka"), 2, unit="times"),
        Aim(f"{saturated} Kafka with one", times("saturated_128", "kafka-flush"), 3, unit="times"),
        Aim(f"{saturated} NATS with sync_interval always", times("saturated_128", "nats-sync"), 8,
            unit="times"),
        Aim(f"{saturated} the yardstick",
            _divided(ours.get("saturated_128"), bare.get("saturated_128")), 0.5),
        Aim("64 connections, one append each, against etcd with 256 puts in flight (client)",
            times("independent", "etcd", "saturated_128"), 2, unit="times"),
        Aim("the same with bare frames", times("independent_bare", "etcd", "saturated_128"), 2,
            unit="times"),
        Aim("p99 at 20,000/s", ours.get("offered_20000_p99"), most=10, unit="ms"),
        Aim("the same against the best that syncs",
            _divided(ours.get("offered_20000_p99"), _least(syncing, "offered_20000_p99", 20_000)),
            most=1 / 3),
        Aim("p50 of a lone append against the best that syncs",
            _divided(ours.get("lone_p50"), _least(syncing, "lone_p50")), most=1),
        Aim("write pause after kill -9 against the shortest",
            _divided(ours.get("pause"), _least(others, "pause")), most=1),
        Aim("CPU of the servers for a record against Kafka", times("cpu_saturated", "kafka"),
            most=1),
        Aim("cold read against Kafka", times("cold_read", "kafka"), 1, unit="times"),
    ]  # fmt: skip


def _divided(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def _least(systems: Sequence[Mapping[str, float]], figure: str, rate: int = 0) -> float | None:
    found = [
        each[figure]
        for each in systems
        if figure in each
        and (not rate or each.get(f"offered_{rate}_reached", rate) >= SUSTAINED_MIN * rate)
    ]
    return min(found, default=None)


def aims_table(found: Sequence[Aim]) -> list[str]:
    lines = ["| figure to reach | measured | aim | |", "|---|---:|---:|---|"]
    for each in found:
        aim = f"at least {each.least:g}" if each.least is not None else f"at most {each.most:.3g}"
        measured = NONE if each.measured is None else f"{each.measured:.2f} {each.unit}".strip()
        met = {True: "met", False: "missed", None: "not measured"}[each.met]
        lines.append(f"| {each.text} | {measured} | {f'{aim} {each.unit}'.strip()} | {met} |")
    return lines
