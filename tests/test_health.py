"""`shardlog-health` asks real HTTP servers, and says what is wrong in one line."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shardlog.health import run


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_well(url: str, capsys: pytest.CaptureFixture[str]):
    assert run([f"{url}/healthz"]) == run([url]) == 0
    assert capsys.readouterr() == ("", "")


def test_not_well(url: str, capsys: pytest.CaptureFixture[str]):
    assert run([f"{url}/readyz"]) == 1
    assert capsys.readouterr().err == f"shardlog-health: {url}/readyz: answers 503\n"


def test_nobody_there(capsys: pytest.CaptureFixture[str]):
    assert run(["http://127.0.0.1:1/healthz"]) == 1
    assert "Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["healthz"], ["https://x/"], ["http://"]])
def test_usage(arguments: list[str]):
    assert run(arguments) == 2


def test_it_imports_little():
    code = "import sys, shardlog.health; print('click' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
