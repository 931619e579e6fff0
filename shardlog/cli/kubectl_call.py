"""Calls of kubectl: whoever can run `kubectl get` can run the plugin, whatever it takes to log in.

The plugin reads objects, writes ShardOperations and ShardSnapshots, and has no credentials of its
own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import rich_click as click

from shardlog.cli.failures import ClusterRefused, ClusterUnavailable

F = TypeVar("F", bound=Callable[..., Any])
Json = Any
API_VERSION = "shardlog.dev/v1alpha1"
SHARDS = "shards.shardlog.dev"
OPERATIONS = "shardoperations.shardlog.dev"
SNAPSHOTS = "shardsnapshots.shardlog.dev"
SELECTOR = "app.kubernetes.io/name=shardlog"
DIRECTORY = f"{SELECTOR},app.kubernetes.io/component=operator"
LOGGING = f"{SELECTOR},app.kubernetes.io/component in (operator,node)"
NODES = f"{SELECTOR},app.kubernetes.io/component=node"
REFUSALS = ("(NotFound)", "(AlreadyExists)", "(Invalid)", "(Forbidden)", "(Conflict)", "is invalid")


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Flags that go with every call."""

    flags: tuple[str, ...] = ()

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """What it prints; raises `ClusterRefused` or `ClusterUnavailable`."""
        done = subprocess.run(
            [_program(), *arguments, *self.flags],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise _failure(done.returncode, done.stderr)
        return done.stdout

    def lines(self, *arguments: str) -> Iterator[str]:
        """As they come, until kubectl ends, which may fail as `run` does, or nobody wants more."""
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(
                [_program(), *arguments, *self.flags],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                yield from process.stdout
                code = process.wait()
            finally:
                process.terminate()
            if code:
                said.seek(0)
                raise _failure(code, said.read())

    def get(self, *arguments: str) -> Json:
        return json.loads(self.run("get", *arguments, "-o", "json"))

    def items(self, kind: str, *arguments: str) -> list[Json]:
        found: list[Json] = self.get(kind, *arguments)["items"]
        return sorted(found, key=lambda each: each["metadata"]["name"])

    def directory(self, path: str) -> Json:
        """What the operators' directory says, by way of the API server; None if it says nothing.

        Whoever may read Shards need not be allowed to do this.
        """
        try:
            services = self.items("services", "-l", DIRECTORY)
            for service in services:
                meta = service["metadata"]
                proxy = f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}:http/proxy"
                return json.loads(self.run("get", "--raw", f"{proxy}/{path}"))
        except (ClusterRefused, ClusterUnavailable, ValueError):
            return None
        return None

    def create(self, body: Json) -> Json:
        return json.loads(self.run("create", "-f", "-", "-o", "json", stdin=json.dumps(body)))


def _failure(code: int, said: str) -> ClusterRefused | ClusterUnavailable:
    told = " ".join(said.split()) or f"kubectl ended with {code}"
    kind = next((each.strip("()") for each in REFUSALS if each in told), None)
    if kind is not None:
        return ClusterRefused(told.removeprefix("Error from server "), kind)
    return ClusterUnavailable(told)


def _program() -> str:
    found = shutil.which(os.environ.get("KUBECTL", "kubectl"))
    if found is None:
        raise ClusterUnavailable("kubectl is not on PATH")
    return found


def kubectl_options(command: F) -> F:
    """Those of kubectl that say which cluster is meant; the command gets a `kubectl`."""

    def given(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        flags = ctx.meta.setdefault("shardlog.kubectl", {})
        if value is not None:
            flags[parameter.name] = value

    for flags, told in (
        (("--kubeconfig",), "The file with clusters and credentials."),
        (("--context",), "The context of the kubeconfig."),
        (("-n", "--namespace"), "The namespace of the installation."),
    ):
        command = click.option(
            *flags, metavar="TEXT", help=told, callback=given, expose_value=False
        )(command)
    return command


def kubectl_of(ctx: click.Context) -> Kubectl:
    flags = ctx.meta.get("shardlog.kubectl", {})
    return Kubectl(tuple(f"--{name}={value}" for name, value in flags.items()))


def named(kubectl: Kubectl, kind: str, *arguments: str) -> Sequence[str]:
    """Names for a shell that completes; nothing may fail then."""
    try:
        listed = kubectl.run("get", kind, *arguments, "-o", "name", "--request-timeout=2s")
    except click.ClickException:
        return ()
    return [line.partition("/")[2] for line in listed.split()]
