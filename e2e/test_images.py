"""All images, built with whatever builder is here, and looked into."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from e2e.images import archive_of, builder
from shardlog import __version__

SIZE_BYTES_MAX = {"node": 350 << 20, "operator": 350 << 20, "spark": 1400 << 20}
PORTS = {"node": 7402, "operator": 7410}
VERSIONS = {
    "node": f"shardlog-node {__version__}",
    "operator": f"shardlog-operator {__version__}",
    "spark": f"shardlog, version {__version__}",
}


@pytest.fixture(scope="module", params=VERSIONS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def archive(kind: str) -> Path:
    return archive_of(kind, __version__)


def described(archive: Path) -> tuple[list[str], dict[str, Any]]:
    """The names in an archive of one image, and how it is run."""
    with tarfile.open(archive) as files:
        manifest = files.extractfile("manifest.json")
        assert manifest
        (image,) = json.load(manifest)
        described = files.extractfile(image["Config"])
        assert described
        return image["RepoTags"], json.load(described)["config"]


def test_an_archive_is_as_the_chart_wants_it(kind: str, archive: Path):
    names, run = described(archive)
    assert [name.removeprefix("docker.io/library/") for name in names] == [
        f"shardlog-{kind}:{__version__}"
    ]
    assert run["User"] == "10001:10001"
    assert run["Labels"]["org.opencontainers.image.version"] == __version__
    if kind in PORTS:
        assert run["Entrypoint"] == [f"shardlog-{kind}"]
        probe = ["CMD", "shardlog-health", f"http://127.0.0.1:{PORTS[kind]}/healthz"]
        assert run["Healthcheck"]["Test"] == probe
    else:
        assert run["Entrypoint"] == ["python3", "-m", "shardlog_spark.pod"]
    assert archive.stat().st_size < SIZE_BYTES_MAX[kind]


def test_programs_run_and_the_tools_to_build_them_stayed_behind(kind: str, archive: Path):
    builder().load(archive)
    image = f"docker.io/library/shardlog-{kind}:{__version__}"
    program = VERSIONS[kind].split()[0].removesuffix(",")
    script = f"{program} --version; id -u; command -v shardlog-health; ls /src /tmp/tools"
    told = builder().said(image, "sh", "-c", f"{script} 2>/dev/null || true")
    assert told.splitlines() == [VERSIONS[kind], "10001", "/opt/shardlog/bin/shardlog-health"]


def test_every_module_finds_what_it_imports(kind: str, archive: Path):
    """Programs import most modules only once they serve."""
    builder().load(archive)
    package = f"shardlog_{kind}"
    script = (
        f"import pkgutil, importlib, {package} as top\n"
        "for each in pkgutil.walk_packages(top.__path__, top.__name__ + '.'):\n"
        "    importlib.import_module(each.name)\n"
        "print('all')"
    )
    image = f"docker.io/library/shardlog-{kind}:{__version__}"
    assert builder().said(image, "python3", "-c", script).strip() == "all"


def test_an_image_is_built_once(kind: str, archive: Path):
    before = archive.stat().st_mtime_ns
    assert archive_of(kind, __version__) == archive
    assert archive.stat().st_mtime_ns == before


def test_spark_runs_in_its_image():
    """Java, PySpark and a job, with the user that the image has, who has a name."""
    archive = archive_of("spark", __version__)
    builder().load(archive)
    script = (
        "id -un; export SPARK_LOCAL_IP=127.0.0.1 SPARK_DRIVER_BIND_ADDRESS=127.0.0.1; "
        "python3 -m shardlog_spark.pod driver "
        "'--master=local[1]' --conf=spark.ui.enabled=false /opt/shardlog/jobs/export.py "
        "--snapshots=file:///nowhere --shard=orders --out=/tmp/out 2>&1 | tail -n 1"
    )
    image = f"docker.io/library/shardlog-spark:{__version__}"
    name, last = builder().said(image, "sh", "-c", script).splitlines()
    assert name == "spark"
    assert last.startswith("export: ")
    assert "nowhere" in last
