"""What of the chart can be told without helm; the rest is tried in `make e2e`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
CRDS = ROOT / "crds"
CHART = ROOT / "charts" / "shardlog"


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_crds_of_the_chart_are_those_of_crds(path: Path):
    copy = CHART / "files" / "crds" / path.name
    assert copy.read_text() == path.read_text(), "run `make chart`"


def test_the_chart_has_no_other_crds():
    names = {path.name for path in CRDS.glob("*.yaml")}
    assert {path.name for path in (CHART / "files" / "crds").iterdir()} == names
    assert len(names) >= 2


def test_the_version_is_that_of_the_package():
    from shardlog import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def undescribed(schema: dict, path: str) -> list[str]:
    """Fields that `kubectl explain` would say nothing about."""
    found = [] if "description" in schema else [path]
    for name, below in schema.get("properties", {}).items():
        found += undescribed(below, f"{path}.{name}")
    items = schema.get("items", {})
    for name, below in items.get("properties", {}).items():
        found += undescribed(below, f"{path}[].{name}")
    return found


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_field_is_described(path: Path):
    crd = yaml.safe_load(path.read_text())
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            assert undescribed(schema["properties"][part], part) == []
