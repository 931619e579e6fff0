"""Programs built from Go modules: found at once when built, one clear line when they cannot be."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from e2e.binaries import MODULES, PROGRAMS, CannotBuild, binary, main


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing on PATH but what a test puts into this directory."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return directory


def provide_go(programs: Path, script: str) -> None:
    go = programs / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(go.stat().st_mode | stat.S_IXUSR)


RECENT = 'if [ "$1" = env ]; then echo go1.24.4; exit; fi\n'
WRITES = 'while [ "$1" != -o ]; do shift; done; echo "$3" > "$2"'


def test_a_program_is_built_once(programs: Path):
    provide_go(programs, RECENT + WRITES)
    first = binary("etcd")
    assert first.read_text().strip() == "go.etcd.io/etcd/server/v3"
    (programs / "go").unlink()
    assert binary("etcd") == first


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (None, "etcd: needs Go 1.24 or newer to be built: apt-get install golang"),
        ("echo go1.22.1", "etcd: needs Go 1.24 or newer to be built, and `go` is go1.22.1"),
        ("exit 1", "etcd: needs Go 1.24 or newer to be built, and `go` is broken"),
        (RECENT + "echo first; echo no space left; exit 1", "etcd: go build failed: no space left"),
    ],
)
def test_what_is_missing_is_one_line(programs: Path, script: str | None, told: str):
    if script is not None:
        provide_go(programs, script)
    with pytest.raises(CannotBuild) as failure:
        binary("etcd")
    assert str(failure.value) == told


def test_a_build_that_failed_is_not_kept(programs: Path):
    provide_go(programs, RECENT + WRITES + "; exit 1")
    with pytest.raises(CannotBuild):
        binary("etcd")
    provide_go(programs, RECENT + WRITES)
    assert binary("etcd").exists()


def test_the_command_prints_where_they_are(programs: Path, capsys: pytest.CaptureFixture[str]):
    provide_go(programs, RECENT + WRITES)
    assert main(["etcd", "helm"]) == 0
    assert [Path(line).name for line in capsys.readouterr().out.split()] == ["etcd", "helm"]


def test_an_unknown_program_is_refused(programs: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["etcdd"]) == 2
    assert capsys.readouterr().err.startswith("binaries: etcdd: not one of kube-apiserver, ")


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"pause"}))
def test_its_module_names_the_program_and_its_version(name: str):
    program = PROGRAMS[name]
    required = (MODULES / program.module / "go.mod").read_text().split()
    assert program.package in required
    assert program.version.partition("-")[0] in required  # what follows is of our own build
