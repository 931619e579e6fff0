"""Where the files of a cluster on one machine are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shardlog.where import CLUSTER_FILE, default_directory, home_directory

COORDINATOR = "coordinator"
SUPERVISOR = "supervisor"


@dataclass(frozen=True, slots=True)
class Layout:
    """One directory, and nothing outside it."""

    directory: Path

    @classmethod
    def of(cls, directory: str | Path | None) -> Layout:
        return cls(Path(os.path.abspath(directory or default_directory())))

    @property
    def is_in_home(self) -> bool:
        """Whether this is the cluster that is found without being told where."""
        return self.directory == home_directory()

    @property
    def cluster_file(self) -> Path:
        return self.directory / CLUSTER_FILE

    @property
    def metadata(self) -> Path:
        return self.directory / "metadata.sqlite"

    @property
    def cluster_key(self) -> Path:
        return self.directory / "cluster.key"

    @property
    def nodes(self) -> Path:
        return self.directory / "nodes"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def run(self) -> Path:
        return self.directory / "run"

    @property
    def change_lock(self) -> Path:
        """Held by whoever starts or stops the cluster."""
        return self.directory / "lock"

    @property
    def tally(self) -> Path:
        """How often the supervisor has started what, for people."""
        return self.run / "supervisor.json"

    def volume(self, node: str) -> Path:
        return self.nodes / node

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def pid_file(self, name: str) -> Path:
        return self.run / f"{name}.pid"

    def everything(self) -> list[Path]:
        """All that a cluster leaves behind: what may be removed with it."""
        beside = [self.metadata.with_name(self.metadata.name + end) for end in ("-wal", "-shm")]
        files = [self.cluster_file, self.cluster_key, self.metadata, *beside]
        return [*files, self.nodes, self.logs, self.run, self.change_lock]
