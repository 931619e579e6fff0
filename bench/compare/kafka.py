"""Kafka: brokers that are controllers too (KRaft), as its own start script runs them.

Heap and collector are those of `kafka-server-start.sh`; everything else that is set has to be, for
this many replicas and for records of a MiB.  Only errors are logged, which costs
nobody anything.  By default a broker leaves syncing to the kernel; with `flush` every append is
synced on each replica before it counts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .programs import KAFKA, java, kafka_class_path, load_program
from .system import HOST, Failed, Running, System, free_ports, stopped_at_the_end

START_TIMEOUT_S = 180
FORMAT_TIMEOUT_S = 120
MESSAGE_BYTES_MAX = 8 << 20
CLUSTER = "shardlogBenchCluster00"
JVM = (
    "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)  # fmt: skip


@dataclass
class RunningKafka(Running):
    ports: list[int] = field(default_factory=list)
    program: str = ""

    @property
    def load(self) -> Sequence[str]:
        addresses = ",".join(f"{HOST}:{port}" for port in self.ports)
        return (self.program, "kafka", addresses)

    def kill_leader(self, log: str) -> None:
        leader = int(self.ask("leader", log=log)["leader"])
        self.processes[leader].kill()


class Kafka(System):
    name = "kafka"
    title = "Kafka"
    syncs = False
    settings = "min.insync.replicas a majority, acks=all, idempotent; syncing left to the kernel"
    flush = False

    @property
    def version(self) -> str:
        return KAFKA

    @contextmanager
    def running(self, directory: Path, replicas: int) -> Iterator[Running]:
        command = [java(), *JVM, "-cp", kafka_class_path()]
        made = RunningKafka(directory, replicas, program=str(load_program()))
        ports = free_ports(2 * replicas)
        made.ports, controllers = ports[:replicas], ports[replicas:]
        voters = ",".join(f"{each}@{HOST}:{port}" for each, port in enumerate(controllers))
        files = [
            self._configure(directory, each, made.ports[each], controllers[each], voters, replicas)
            for each in range(replicas)
        ]
        with stopped_at_the_end(made):
            _format(command, files)
            for each, file in enumerate(files):
                made.start(f"broker-{each}", [*command, "kafka.Kafka", file])
            made.until_listening(made.ports, START_TIMEOUT_S)
            yield made

    def _configure(
        self, directory: Path, number: int, client: int, controller: int, voters: str, replicas: int
    ) -> Path:
        given = {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": directory / f"data-{number}",
            "min.insync.replicas": replicas // 2 + 1,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "replica.fetch.max.bytes": MESSAGE_BYTES_MAX,
            "auto.create.topics.enable": "false",
        }
        if self.flush:
            given["log.flush.interval.messages"] = 1
        file = directory / f"broker-{number}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return file


def _format(command: Sequence[str], files: Sequence[Path]) -> None:
    formatting = [
        subprocess.Popen(
            [*command, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(file)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for file in files
    ]  # fmt: skip
    try:
        for process in formatting:
            _, said = process.communicate(timeout=FORMAT_TIMEOUT_S)
            if process.returncode:
                raise Failed(f"does not start: {(said.strip().splitlines() or ['?'])[-1]}")
    except subprocess.TimeoutExpired as failure:
        raise Failed(f"does not start: no storage after {FORMAT_TIMEOUT_S} s") from failure
    finally:
        for process in formatting:
            if process.poll() is None:
                process.kill()
                process.wait()


class KafkaFlush(Kafka):
    name = "kafka-flush"
    title = "Kafka, flush.messages=1"
    syncs = True
    settings = "the same with log.flush.interval.messages=1"
    flush = True
