"""What the tests here stand on: one API server for the run, a namespace for each test.

Nothing here is skipped: what is missing is told in one line, and the run ends.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.api_server import ApiServer, running
from e2e.binaries import CannotBuild
from e2e.kubernetes import Refused
from e2e.processes import POLL_S, CannotStart

ROOT = Path(__file__).parent.parent
CRDS = ROOT / "crds"
EXPLAINED_TIMEOUT_S = 60.0

_numbers = itertools.count(1)


def pytest_configure() -> None:
    """As in `tests`: a run in the background ignores Ctrl-C, and what it starts must not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A real API server that knows our kinds."""
    try:
        with running(tmp_path_factory.mktemp("api")) as server:
            server.kubectl("apply", "--server-side", "-f", str(CRDS))
            server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
            _await_explained(server)
            yield server
    except (CannotBuild, CannotStart) as failure:
        pytest.exit(f"e2e: {failure}", returncode=8)


def _await_explained(server: ApiServer) -> None:
    """An established kind is served at once, and described a moment later."""
    deadline = time.monotonic() + EXPLAINED_TIMEOUT_S
    while True:
        try:
            for path in CRDS.glob("*.yaml"):
                server.kubectl("explain", path.stem)
            return
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


@pytest.fixture
def namespace(api: ApiServer) -> str:
    """A namespace that no other test uses."""
    name = f"test-{next(_numbers)}"
    api.create_namespace(name)
    return name
