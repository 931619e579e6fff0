"""A Kubernetes that somebody runs, as kubectl knows it: its kubeconfig is all one needs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.binaries import binary

PATIENCE_S = 300.0


class Refused(Exception):  # noqa: N818 - named after what it is
    """kubectl failed; the message is what it wrote."""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    kubeconfig: Path

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints; raises `Refused`."""
        try:
            done = subprocess.run(
                [kubectl(), f"--kubeconfig={self.kubeconfig}", *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        except subprocess.TimeoutExpired:
            words = " ".join(arguments)
            raise Refused(f"no answer within {PATIENCE_S:.0f} s: {words}") from None
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout

    def apply(self, manifest: Mapping[str, Any] | Sequence[Mapping[str, Any]], *flags: str) -> str:
        documents = [manifest] if isinstance(manifest, Mapping) else manifest
        return self.kubectl("apply", "-f", "-", *flags, stdin=yaml.safe_dump_all(documents))

    def get(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def create_namespace(self, name: str, **labels: str) -> None:
        metadata = {"name": name, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def kubectl() -> str:
    """The one that people here use, or else one that is built."""
    return shutil.which("kubectl") or str(binary("kubectl"))
