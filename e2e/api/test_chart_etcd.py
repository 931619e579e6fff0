"""The etcd of the chart, started with the arguments that its pods have, on this machine."""

from __future__ import annotations

import base64
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.api_server import free_port
from e2e.binaries import binary
from e2e.charts import Manifest, only, rendered
from e2e.processes import start

MEMBERS = range(3)
PORTS = (2379, 2380, 2381)
MODES: dict[str, dict[str, Any]] = {"plain": {}, "TLS": {"tls": {"mode": "generated"}}}


def arguments(manifests: list[Manifest]) -> list[str]:
    pod = only(manifests, "StatefulSet", "shardlog-etcd")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["etcd"]
    return [str(each) for each in container["args"]]


def on_this_machine(
    argument: str, member: int, ports: dict[tuple[int, int], int], directory: Path
) -> str:
    """The same, with our ports for its addresses and our directories for its volumes."""
    name = f"shardlog-etcd-{member}"
    argument = argument.replace("$(POD_NAME)", name)
    argument = argument.replace("//0.0.0.0:", f"//{name}.shardlog-etcd.logs.svc:")
    argument = argument.replace("/etc/etcd/tls", str(directory / "tls"))
    argument = argument.replace("/var/lib/etcd", str(directory / name))
    return re.sub(
        r"shardlog-etcd-(\d)\.shardlog-etcd\.logs\.svc:(\d+)",
        lambda found: f"127.0.0.1:{ports[int(found[1]), int(found[2])]}",
        argument,
    )


@contextmanager
def members(
    values: dict[str, Any], directory: Path
) -> Iterator[tuple[dict[tuple[int, int], int], Path]]:
    manifests = rendered(values)
    tls = directory / "tls"
    tls.mkdir()
    if values:
        for name, value in only(manifests, "Secret", "shardlog-tls")["data"].items():
            (tls / name).write_bytes(base64.b64decode(value))
    ports = {(member, port): free_port() for member in MEMBERS for port in PORTS}
    with ExitStack() as stack:
        started = []
        for member in MEMBERS:
            given = [
                on_this_machine(each, member, ports, directory) for each in arguments(manifests)
            ]
            process = start(f"etcd-{member}", [str(binary("etcd")), *given], directory)
            stack.callback(process.stop)
            started.append(process)
        for member, process in enumerate(started):
            ready = f"http://127.0.0.1:{ports[member, 2381]}/readyz"
            process.await_ready(partial(answers, ready))
        yield ports, tls


def answers(url: str, trusted: ssl.SSLContext | None = None) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5.0, context=trusted) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize("values", MODES.values(), ids=MODES)
def test_members_meet_and_their_probes_succeed(values: dict[str, Any], tmp_path: Path):
    with members(values, tmp_path) as (ports, tls):
        for member in MEMBERS:
            assert answers(f"http://127.0.0.1:{ports[member, 2381]}/livez")
        client = f"127.0.0.1:{ports[0, 2379]}/version"
        if not values:
            assert answers(f"http://{client}")
            return
        stranger = ssl.create_default_context(cafile=tls / "ca.crt")
        assert not answers(f"https://{client}", stranger)
        known = ssl.create_default_context(cafile=tls / "ca.crt")
        known.load_cert_chain(tls / "tls.crt", tls / "tls.key")
        assert answers(f"https://{client}", known)
