"""NATS with JetStream: a stream of as many replicas as there are servers, in files.

By default a server syncs its files every two minutes; with `sync_interval: always` before each
acknowledgement.
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
PAYLOAD_BYTES_MAX = 8 << 20


@dataclass
class RunningNats(Running):
    ports: list[int] = field(default_factory=list)
    program: str = ""

    @property
    def load(self) -> Sequence[str]:
        addresses = ",".join(f"nats://{HOST}:{port}" for port in self.ports)
        return (self.program, "nats", addresses)

    def kill_leader(self, log: str) -> None:
        leader = int(self.ask("leader", log=log)["leader"])
        self.processes[leader].kill()


class Nats(System):
    name = "nats"
    title = "NATS JetStream"
    syncs = False
    settings = "file storage, a stream for each shard; synced every two minutes"
    sync = ""

    @property
    def version(self) -> str:
        return PROGRAMS["nats-server"].version.removeprefix("v")

    @contextmanager
    def running(self, directory: Path, replicas: int) -> Iterator[Running]:
        server = go_program("nats-server")
        made = RunningNats(directory, replicas, program=str(load_program()))
        ports = free_ports(2 * replicas)
        made.ports, routes = ports[:replicas], ports[replicas:]
        known = ", ".join(f'"nats://{HOST}:{port}"' for port in routes)
        with stopped_at_the_end(made):
            for number, (port, route) in enumerate(zip(made.ports, routes, strict=True)):
                file = directory / f"server-{number}.conf"
                file.write_text(
                    f'server_name: "{number}"\nlisten: "{HOST}:{port}"\n'
                    f"max_payload: {PAYLOAD_BYTES_MAX}\n"
                    f'jetstream {{ store_dir: "{directory}/data-{number}"{self.sync} }}\n'
                    f'cluster {{ name: bench, listen: "{HOST}:{route}", routes: [{known}] }}\n'
                )
                made.start(f"server-{number}", [server, "-c", file])
            made.until_listening(made.ports, START_TIMEOUT_S)
            yield made


class NatsSync(Nats):
    name = "nats-sync"
    title = "NATS, sync_interval always"
    syncs = True
    settings = "the same with sync_interval: always"
    sync = ", sync_interval: always"
