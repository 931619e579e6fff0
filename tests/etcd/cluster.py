"""One or more members of a real etcd on this machine, which may be killed, paused and restored.

    with EtcdCluster(tmp_path, members=3) as cluster:
        ... cluster.endpoints ...
        cluster.members[0].kill()
        cluster.members[0].start()

Each member is a process of its own on ports that were free; whatever becomes of a test, they end
with the `with`.  `fsync=False` is for tests in which no machine loses power.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from etcd import binaries
from shardlog.metadata.etcd.calls import COMPACT, RANGE, STATUS, Method
from shardlog.metadata.etcd.settings import EtcdSettings, EtcdTls
from shardlog.metadata.generated import etcd_pb2 as pb

READY_S = 60
HOST = "127.0.0.1"
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class EtcdCertificates:
    """Of the members, who signed them, and one that clients need; None: they need none."""

    cert_file: str
    key_file: str
    ca_file: str
    client: tuple[str, str] | None = None


class Member:
    def __init__(self, cluster: EtcdCluster, name: str, client_port: int, other_port: int) -> None:
        self.name = name
        self.endpoint = f"{HOST}:{client_port}"
        self.other_url = f"http://{HOST}:{other_port}"
        self.directory = cluster.directory / name
        self.log = cluster.directory / f"{name}.log"
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def start(self) -> None:
        """Returns at once; see `EtcdCluster.wait_until_ready`."""
        assert not self.is_running
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _command(self) -> list[str]:
        cluster = self._cluster
        scheme = "https" if cluster.certificates else "http"
        command = [
            str(binaries.etcd()),
            f"--name={self.name}",
            f"--data-dir={self.directory}",
            f"--listen-client-urls={scheme}://{self.endpoint}",
            f"--advertise-client-urls={scheme}://{self.endpoint}",
            f"--listen-peer-urls={self.other_url}",
            f"--initial-advertise-peer-urls={self.other_url}",
            f"--initial-cluster={cluster.initial_cluster}",
            "--initial-cluster-token=shardlog-test",
            "--log-level=warn",
            *cluster.flags,
        ]
        if given := cluster.certificates:
            command += [f"--cert-file={given.cert_file}", f"--key-file={given.key_file}"]
            if given.client:
                command += [f"--trusted-ca-file={given.ca_file}", "--client-cert-auth"]
        return command

    def kill(self) -> None:
        """As by `kill -9`."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, by: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self.resume()
            self._process.send_signal(by)
        self._process.wait(READY_S)
        self._process = None


class EtcdCluster:
    def __init__(
        self,
        directory: Path,
        members: int = 1,
        *,
        certificates: EtcdCertificates | None = None,
        name: str = "",
        flags: Sequence[str] = (),
        fsync: bool = False,
    ) -> None:
        self.directory = directory
        self.certificates = certificates
        # What the certificates are for, if not for the address.
        self.name = name
        self.flags = [*flags, *([] if fsync else ["--unsafe-no-fsync"])]
        self._count = members
        self.members: list[Member] = []

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    @property
    def initial_cluster(self) -> str:
        return ",".join(f"{member.name}={member.other_url}" for member in self.members)

    def settings(self, prefix: str = "/test/", tls: EtcdTls | None = None) -> EtcdSettings:
        if tls is None and self.certificates:
            tls = EtcdTls(ca_file=self.certificates.ca_file)
        return EtcdSettings(self.endpoints, prefix, tls)

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(ATTEMPTS):
            ports = _free_ports(2 * self._count)
            self.members = [
                Member(self, f"m{number}", ports[2 * number], ports[2 * number + 1])
                for number in range(self._count)
            ]
            try:
                self.start()
            except PortTaken:
                self.__exit__(None, None, None)
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            return self
        raise AssertionError("unreachable")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.kill()

    def start(self) -> None:
        """All that do not run."""
        for member in self.members:
            if not member.is_running:
                member.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Every member answers a linearizable read."""
        deadline = time.monotonic() + READY_S
        for member in self.members:
            self._ask_until(member, deadline)

    def _ask_until(self, member: Member, deadline: float) -> None:
        while True:
            try:
                self.ask(member, RANGE, pb.RangeRequest(key=b"/"))
            except grpc.RpcError as error:
                # With rights to check the member is ready to say so.
                if error.code() in (grpc.StatusCode.UNAUTHENTICATED,
                                    grpc.StatusCode.INVALID_ARGUMENT):  # fmt: skip
                    return
                self._require_alive(member, deadline, str(error))
            else:
                return

    def _require_alive(self, member: Member, deadline: float, why: str) -> None:
        if not member.is_running:
            log = member.log.read_text()
            if "address already in use" in log:
                raise PortTaken(log)
            raise AssertionError(f"{member.name} has ended: {log}")
        if time.monotonic() > deadline:
            raise AssertionError(f"{member.name}: {why}: {member.log.read_text()}")
        time.sleep(0.05)

    def ask(self, member: Member, method: Method, request: object, timeout_s: float = 5) -> object:
        """One call to one member."""
        options: list[tuple[str, int | str]] = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if self.name:
            options.append(("grpc.ssl_target_name_override", self.name))
        if given := self.certificates:
            cert_file, key_file = given.client or (None, None)
            credentials = grpc.ssl_channel_credentials(
                Path(given.ca_file).read_bytes(),
                Path(key_file).read_bytes() if key_file else None,
                Path(cert_file).read_bytes() if cert_file else None,
            )
            channel = grpc.secure_channel(member.endpoint, credentials, options)
        else:
            channel = grpc.insecure_channel(member.endpoint, options)
        with channel:
            call = channel.unary_unary(
                method.path, method.request.SerializeToString, method.response.FromString
            )
            return call(request, timeout=timeout_s)

    def leader(self) -> Member:
        deadline = time.monotonic() + READY_S
        while True:
            for member in self.members:
                if member.is_running:
                    status = self.ask(member, STATUS, pb.StatusRequest())
                    if status.leader and status.leader == status.header.member_id:  # type: ignore[attr-defined]
                        return member
            assert time.monotonic() < deadline, "no leader"
            time.sleep(0.05)

    @property
    def revision(self) -> int:
        answer = self.ask(self.members[0], RANGE, pb.RangeRequest(key=b"/"))
        return int(answer.header.revision)  # type: ignore[attr-defined]

    def compact(self) -> int:
        """Forget all changes so far; the revision up to which they are forgotten."""
        revision = self.revision
        self.ask(self.members[0], COMPACT, pb.CompactionRequest(revision=revision, physical=True))
        return revision

    def ctl(self, *arguments: str) -> str:
        """`etcdctl`, as root where passwords are asked for."""
        endpoints = ",".join(member.endpoint for member in self.members if member.is_running)
        done = subprocess.run(
            [str(binaries.etcdctl()), f"--endpoints={endpoints}", *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    # --- backups, of one member ------------------------------------------------------------------

    def back_up(self, path: Path) -> None:
        """A copy of its database, as `etcdctl snapshot save` makes it, but of a stopped member."""
        (member,) = self.members
        member.stop()
        shutil.copyfile(member.directory / "member" / "snap" / "db", path)
        self.start()

    def restore(self, path: Path, *flags: str) -> None:
        """In place of what the member has; `--bump-revision=N --mark-compacted` may be given."""
        (member,) = self.members
        member.kill()
        shutil.rmtree(member.directory)
        subprocess.run(
            [
                str(binaries.etcdutl()), "snapshot", "restore", str(path),
                f"--data-dir={member.directory}", f"--name={member.name}",
                f"--initial-cluster={self.initial_cluster}",
                "--initial-cluster-token=shardlog-test",
                f"--initial-advertise-peer-urls={member.other_url}",
                "--skip-hash-check", *flags,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        self.start()


class PortTaken(Exception):  # noqa: N818 - named after what happened
    """Somebody took a port between its choice and the start."""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
