"""Volumes of three nodes with one shard, as every format version wrote them.

`tests/storage/golden` has a single replica with all that can befall one.  Here is what an upgrade
meets: volumes that nodes were stopped on, the shard's record in the metadata, and the records that
clients have to find again, by nodes that open them (`tests/client/test_golden_volumes.py`) and on
Kubernetes (`e2e/cluster/test_upgrade.py`).

    vN.tar.gz    one directory for each node, as it was on its volume
    vN.json      `record`: the shard's; `records`: the log, as `shardlog read -o json` prints it
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardlog.metadata.records import decode_shard, shard_key
from shardlog.protocol.shard import Shard

HERE = Path(__file__).parent
SHARD = "golden"
NODES = ("shardlog-node-0", "shardlog-node-1", "shardlog-node-2")
"""Named as the chart names them, since volumes and records keep the names of their nodes."""
VERSIONS = sorted(path.stem for path in HERE.glob("v*.json"))


@dataclass(frozen=True, slots=True)
class GoldenVolumes:
    version: str

    @property
    def archive(self) -> Path:
        return HERE / f"{self.version}.tar.gz"

    @property
    def _told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((HERE / f"{self.version}.json").read_text())
        return told

    @property
    def record(self) -> bytes:
        """The shard's record, byte for byte as it was in the metadata."""
        return str(self._told["record"]).encode()

    @property
    def shard(self) -> Shard:
        return decode_shard(shard_key(SHARD), self.record)

    @property
    def records(self) -> list[Any]:
        found: list[Any] = self._told["records"]
        return found

    def unpack(self, directory: Path) -> None:
        with tarfile.open(self.archive) as archive:
            archive.extractall(directory, filter="data")
