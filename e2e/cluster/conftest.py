"""One cluster, one installation and one report for all scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.binaries import CannotBuild
from e2e.cluster.release import Release
from e2e.cluster.report import Report
from e2e.cluster.scenario import Scenarios
from e2e.processes import CannotStart
from e2e.providers import Cluster, OutOfReach, cluster

ROOT = Path(__file__).parents[2]
REPORT = pytest.StashKey[Report]()


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Cluster]:
    try:
        with cluster() as found:
            yield found
    except (CannotBuild, CannotStart) as failure:
        pytest.exit(f"e2e: {failure}", returncode=8)


@pytest.fixture(scope="session")
def release(kubernetes: Cluster) -> Release:
    installed = Release(kubernetes)
    try:
        installed.load_images()
    except (CannotBuild, CannotStart) as failure:
        pytest.exit(f"e2e: {failure}", returncode=8)
    installed.install()
    return installed


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Report:
    return pytestconfig.stash.setdefault(REPORT, Report())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    report = config.stash.get(REPORT, None)
    if report:
        report.write(ROOT)
        terminalreporter.section("scenarios")
        terminalreporter.write(report.text())


@pytest.fixture
def scenarios(release: Release, report: Report) -> Scenarios:
    return Scenarios(release, report)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A cluster that is not ours to break leaves a scenario out, and says so."""
    try:
        return (yield)
    except OutOfReach as reason:
        pytest.skip(str(reason))
