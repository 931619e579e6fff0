"""The pod of clients (`load.py`) from outside: started, asked how far it is, ended, and judged.

The judge is that of the tests with real processes (`tests/faults/history.py`): nothing that was
acknowledged is lost, doubled or moved, everybody saw the same log, and appends and confirmed reads
are linearizable.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.history import ConfirmedRead, Fate, History, Sent, Standing, contradictions

from e2e.cluster.release import NAME, Release
from shardlog import __version__

Json = Any
PROGRAM = Path(__file__).with_name("load.py")


@dataclass(frozen=True, slots=True)
class Judged:
    """A history that holds: how much there was, and the longest time without any answer."""

    records: int
    reads: int
    pause_ms: float
    history: History


@dataclass(frozen=True, slots=True)
class Clients:
    release: Release
    shard: str

    @property
    def name(self) -> str:
        return f"load-{self.shard}"

    def start(self, avoid: str = "", first: int = 0) -> None:
        """Anywhere but on the machine `avoid`; `first` records of each producer come at once."""
        release = self.release
        words = [self.shard, str(first)]
        release.apply(_manifests(release.namespace, self.name, words, avoid))
        release.until(self.acknowledged, f"{self.name}: nothing was acknowledged")

    def acknowledged(self) -> int:
        """How many records so far."""
        lines = self.release.kubectl("logs", self.name, "--tail=1").split()
        return int(lines[-1]) if lines and lines[-1].isdecimal() else 0

    def until_more(self, records: int = 20) -> None:
        """So many more than now, which shows that writes go on."""
        wanted = self.acknowledged() + records
        self.release.until(
            lambda: self.acknowledged() >= wanted, f"{self.name}: nothing is acknowledged any more"
        )

    def finish(self) -> Judged:
        """End them, and judge what they saw."""
        release = self.release
        release.until(lambda: self._in_pod("touch", "/work/stop") or True, self.name)
        text = release.until(
            lambda: self._in_pod("sh", "-c", "cat /work/history.json 2>/dev/null || true"),
            f"{self.name}: some record is never acknowledged, or the log cannot be read",
        )
        return judged(json.loads(text))

    def remove(self) -> None:
        kinds = (f"pod/{self.name}", f"configmap/{self.name}")
        self.release.kubectl("delete", *kinds, "--ignore-not-found", "--wait=false")

    def _in_pod(self, *command: str) -> str:
        return self.release.kubectl("exec", self.name, "--", *command)


def judged(told: Json) -> Judged:
    assert told["failures"] == [], told["failures"][:5]
    history = History()
    for producer, number, called_ns, replied_ns, offset in told["sent"]:
        fate = Fate.WAITING if replied_ns is None else Fate.ACKNOWLEDGED
        history.sent.append(Sent(producer, number, called_ns, replied_ns, offset, fate))
    for called_ns, replied_ns, start, end, seen in told["reads"]:
        stands = tuple(Standing(*each) for each in seen)
        history.reads.append(ConfirmedRead(called_ns, replied_ns, start, end, stands))
    history.log = [Standing(*each) for each in told["log"]]
    history.tails["the tail"] = [Standing(*each) for each in told["tail"]]
    found = contradictions(history)
    assert found == [], found[:20]
    assert history.sent, "nobody sent anything"
    assert history.reads, "nobody read anything"
    pause_ms = _longest_pause_ms(history)
    return Judged(len(history.sent), len(history.reads), pause_ms, history)


def _longest_pause_ms(history: History) -> float:
    replied = sorted(sent.replied_ns for sent in history.sent if sent.replied_ns is not None)
    pauses = [later - earlier for earlier, later in itertools.pairwise(replied)]
    return max(pauses, default=0) / 1e6


def _manifests(namespace: str, name: str, words: list[str], avoid: str) -> list[Json]:
    """The pod of clients, and its program; never on the machine `avoid`."""
    elsewhere = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [avoid]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]
            }
        }
    }
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    container = {
        "name": "load",
        "image": f"shardlog-node:{__version__}",
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "/program/load.py", *words],
        "env": [{"name": "SHARDLOG_CLUSTER", "value": f"http://{NAME}"}],
        "securityContext": security,
        "volumeMounts": [
            {"name": "program", "mountPath": "/program"},
            {"name": "work", "mountPath": "/work"},
        ],
    }
    metadata = {"name": name, "namespace": namespace}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": affinity if avoid else {},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "program", "configMap": {"name": name}},
            {"name": "work", "emptyDir": {}},
        ],
    }
    program = {"load.py": PROGRAM.read_text()}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": program},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    ]
