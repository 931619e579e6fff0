"""What several tests of the client need."""

import socket

import pytest


@pytest.fixture
def unused_address() -> str:
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host, port = probe.getsockname()
    return f"{host}:{port}"
