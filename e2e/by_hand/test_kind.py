"""The quickstart on kind, as a person runs it: `examples/kind/up`, and `down`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e import node_image
from e2e.binaries import CannotBuild, binary
from e2e.cluster.release import ETCD_IMAGE
from e2e.docker_daemon import docker
from e2e.images import ROOT, archive_of, archive_of_program
from e2e.kind_cluster import IMAGE_VARIABLE
from e2e.kubernetes import kubectl
from e2e.processes import CannotStart
from shardlog import __version__

UP, DOWN = ROOT / "examples" / "kind" / "up", ROOT / "examples" / "kind" / "down"
UP_TIMEOUT_S = 1200


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """With the programs that the script calls, and what it could else not pull."""
    try:
        archives = [archive_of(kind, __version__) for kind in ("node", "operator")]
        archives.append(archive_of_program("etcd", ETCD_IMAGE))
        programs = tmp_path / "programs"
        programs.mkdir()
        for name in ("kind", "helm"):
            (programs / name).symlink_to(shutil.which(name) or binary(name))
        (programs / "kubectl").symlink_to(kubectl())
        with docker(keep=False) as daemon:
            yield {
                **os.environ,
                **daemon.environment,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "KUBECONFIG": str(tmp_path / "kubeconfig"),
                "NODE_IMAGE": os.environ.get(IMAGE_VARIABLE) or node_image.imported(daemon),
                "ARCHIVES": " ".join(map(str, archives)),
            }
    except (CannotBuild, CannotStart) as failure:
        pytest.exit(f"e2e: {failure}", returncode=8)


def test_quickstart(variables: Mapping[str, str]):
    def run(script: Path) -> str:
        done = subprocess.run(
            [script],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=UP_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    try:
        lines = run(UP).splitlines()
        read = lines[lines.index("== Append and read") :]
        assert any("a cup of tea" in line for line in read)
        assert any("two biscuits" in line for line in read)
    finally:
        run(DOWN)
    clusters = subprocess.run(
        ["kind", "get", "clusters"], env=variables, capture_output=True, text=True, check=True
    )
    assert "shardlog" not in clusters.stdout.split()
