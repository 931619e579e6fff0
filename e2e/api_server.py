"""A real kube-apiserver with its etcd, on this machine and for one user: no nodes, no controllers.

This is all it takes to try what the API server itself does: schemas, CEL rules, defaults, columns,
subresources, RBAC, admission.  It listens on 127.0.0.1 with a certificate made for the occasion,
and knows its user by a token.  Objects are stored, and nothing acts upon them, so that a test (or
an operator under test) is the only one who does.

    with running(directory) as api:
        api.kubectl("get", "shards")

A test takes the fixture `api` of `conftest.py`, which is one server for the whole run.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml

from e2e.binaries import binary
from e2e.kubernetes import Kubernetes
from e2e.network import SERVICES
from e2e.processes import CannotStart, Process, start

STARTS_MAX = 3
"""A free port can be taken by another process before the one it was meant for binds it."""
FIRST_SERVICE = "10.96.0.1"
"""The address of the API server itself among those of Services."""

Ready = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class ApiServer(Kubernetes):
    """Where it is, and what a client needs to be believed."""

    url: str
    authority: Path
    token: str
    directory: Path
    process: Process

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """For a client that may do what this service account may do, and nothing else."""
        token = self.kubectl("create", "token", service_account, "-n", namespace).strip()
        path = self.directory / f"{namespace}-{service_account}.kubeconfig"
        write_kubeconfig(path, self.url, self.authority, token, namespace)
        return path

    def restart(self) -> None:
        """Killed, and started again where it was; raises `CannotStart`."""
        self.process.kill()
        self.process.start()
        trusted = ssl.create_default_context(cafile=self.authority)
        self.process.await_ready(lambda: _answers(f"{self.url}/readyz", trusted, self.token))


def write_kubeconfig(
    path: Path, url: str, authority: Path, token: str, namespace: str = "default"
) -> None:
    name = "shardlog-e2e"
    cluster = {"server": url, "certificate-authority": str(authority)}
    context = {"cluster": name, "user": name, "namespace": namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))


ALONE = (
    "--endpoint-reconciler-type=none",
    # Nobody makes the default account of a namespace, without which no pod would be let in.
    "--disable-admission-plugins=ServiceAccount",
)
"""Flags for an API server that nobody else belongs to."""


@contextmanager
def running(
    directory: Path, address: str = "127.0.0.1", flags: Sequence[str] = ALONE
) -> Iterator[ApiServer]:
    """Up when entered, gone when left; raises `CannotBuild` and `CannotStart`."""
    directory.mkdir(parents=True, exist_ok=True)
    authority, token, kubeconfig = (
        directory / name for name in ("authority.pem", "token", "kubeconfig")
    )
    _make_secrets(directory, address)
    with ExitStack() as stack:
        _, etcd_url = _started(stack, lambda: _start_etcd(directory))
        process, url = _started(
            stack, lambda: _start_api_server(directory, etcd_url, address, flags)
        )
        write_kubeconfig(kubeconfig, url, authority, token.read_text())
        yield ApiServer(kubeconfig, url, authority, token.read_text(), directory, process)


def _started(
    stack: ExitStack, attempt: Callable[[], tuple[Process, str, Ready]]
) -> tuple[Process, str]:
    """A process that serves, on the first try or a later one, and its URL."""
    for remaining in reversed(range(STARTS_MAX)):
        process, url, is_ready = attempt()
        try:
            process.await_ready(is_ready)
        except CannotStart:
            process.stop()
            if not remaining:
                raise
        else:
            stack.callback(process.stop)
            break
    return process, url


def _start_etcd(directory: Path) -> tuple[Process, str, Ready]:
    url, other_url = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        str(binary("etcd")),
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={other_url}",
        f"--initial-advertise-peer-urls={other_url}",
        f"--initial-cluster=default={other_url}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    return start("etcd", command, directory), url, lambda: _answers(f"{url}/readyz")


def _start_api_server(
    directory: Path, etcd_url: str, address: str, flags: Sequence[str]
) -> tuple[Process, str, Ready]:
    port = free_port(address)
    url = f"https://{address}:{port}"
    command = [
        str(binary("kube-apiserver")),
        f"--etcd-servers={etcd_url}",
        f"--bind-address={address}",
        f"--secure-port={port}",
        f"--tls-cert-file={directory / 'certificate.pem'}",
        f"--tls-private-key-file={directory / 'key.pem'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={directory / 'key.pem'}",
        f"--service-account-signing-key-file={directory / 'key.pem'}",
        f"--service-cluster-ip-range={SERVICES}",
        *flags,
    ]
    trusted = ssl.create_default_context(cafile=directory / "authority.pem")
    token = (directory / "token").read_text()
    process = start("kube-apiserver", command, directory)
    return process, url, lambda: _answers(f"{url}/readyz", trusted, token)


def _make_secrets(directory: Path, address: str) -> None:
    authority = trustme.CA()
    names = {address, "127.0.0.1", FIRST_SERVICE, "localhost", "kubernetes.default.svc"}
    certificate = authority.issue_cert(*sorted(names))
    authority.cert_pem.write_to_path(directory / "authority.pem")
    certificate.cert_chain_pems[0].write_to_path(directory / "certificate.pem")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    token = secrets.token_hex(16)
    (directory / "token").write_text(token)
    (directory / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as bound:
        bound.bind((address, 0))
        port: int = bound.getsockname()[1]
    return port


def _answers(url: str, trusted: ssl.SSLContext | None = None, token: str = "") -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5.0, context=trusted) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
