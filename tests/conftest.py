"""What a test run does when something it needs is absent.

A test that needs a program says so: `@pytest.mark.needs("go")`. Without it the test is skipped, and
the end of the run says what was left out and how to get it. A skip is easy to overlook, so with
`REQUIRE_ALL=1` any skip, of whatever origin, fails the run.

A run that a shell started in the background ignores Ctrl-C, and so would all that it starts: tests
that interrupt a command would wait for ever. So it is heeded again.
"""

import os
import shutil
import signal
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# Examples may take as long as they do: a busy machine is no failure.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

HOW_TO_GET = {
    "etcd": "apt-get install golang (1.24 or newer) to build it",
    "go": "apt-get install golang",
    "java": "apt-get install openjdk-17-jre-headless",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"needs(*programs): skip unless these are on PATH or can be built: {', '.join(HOW_TO_GET)}",
    )
    config.pluginmanager.register(LeftOut())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for program in mark.args:
            if program not in HOW_TO_GET:
                raise pytest.UsageError(f"needs({program!r}): not one of {', '.join(HOW_TO_GET)}")
            if not is_at_hand(program):
                pytest.skip(f"needs {program}: {HOW_TO_GET[program]}")


def is_at_hand(program: str) -> bool:
    if program == "etcd":
        from etcd import binaries

        return binaries.is_at_hand()
    return shutil.which(program) is not None


class LeftOut:
    """Counts skips by reason. Under xdist the controller sees every worker's reports."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.require_all = os.environ.get("REQUIRE_ALL", "0") not in ("", "0")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "wasxfail"):
            self.count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.count(report)

    def count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.reasons[str(reason).removeprefix("Skipped: ")] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.require_all and self.reasons and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.reasons:
            return
        terminalreporter.section("left out")
        for reason, count in sorted(self.reasons.items()):
            terminalreporter.write_line(f"{count} skipped: {reason}")
        if self.require_all:
            terminalreporter.write_line("REQUIRE_ALL is set: a skip fails the run", red=True)
