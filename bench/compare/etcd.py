"""etcd: no log, but what many keep small ordered records in; a record is a key.

Its settings are the defaults but for the size of the database, which a benchmark fills.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from e2e.binaries import PROGRAMS

from .programs import go_program, load_program
from .system import HOST, Running, System, free_ports, stopped_at_the_end

START_TIMEOUT_S = 30
DATABASE_BYTES_MAX = 8 << 30
REQUEST_BYTES_MAX = 8 << 20


@dataclass
class RunningEtcd(Running):
    ports: list[int] = field(default_factory=list)
    program: str = ""

    @property
    def load(self) -> Sequence[str]:
        addresses = ",".join(f"http://{HOST}:{port}" for port in self.ports)
        return (self.program, "etcd", addresses)

    def kill_leader(self, log: str) -> None:
        leader = int(self.ask("leader", log=log)["leader"])
        self.processes[leader].kill()


class Etcd(System):
    name = "etcd"
    title = "etcd"
    syncs = True
    settings = "a key for each record; saturated: 256 puts under way on 16 connections"
    has_shards = False

    @property
    def version(self) -> str:
        return PROGRAMS["etcd"].version.removeprefix("v")

    @contextmanager
    def running(self, directory: Path, replicas: int) -> Iterator[Running]:
        member = go_program("etcd")
        made = RunningEtcd(directory, replicas, program=str(load_program()))
        ports = free_ports(2 * replicas)
        made.ports, others = ports[:replicas], ports[replicas:]
        cluster = ",".join(f"m{each}=http://{HOST}:{port}" for each, port in enumerate(others))
        with stopped_at_the_end(made):
            for number, (port, other) in enumerate(zip(made.ports, others, strict=True)):
                made.start(f"member-{number}", [
                    member, f"--name=m{number}", f"--data-dir={directory}/data-{number}",
                    f"--listen-client-urls=http://{HOST}:{port}",
                    f"--advertise-client-urls=http://{HOST}:{port}",
                    f"--listen-peer-urls=http://{HOST}:{other}",
                    f"--initial-advertise-peer-urls=http://{HOST}:{other}",
                    f"--initial-cluster={cluster}", "--log-level=error",
                    f"--quota-backend-bytes={DATABASE_BYTES_MAX}",
                    f"--max-request-bytes={REQUEST_BYTES_MAX}",
                ])  # fmt: skip
            made.until_listening(made.ports, START_TIMEOUT_S)
            yield made
