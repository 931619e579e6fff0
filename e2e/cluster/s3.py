"""An S3 endpoint in the cluster: that of the tests, in a pod, with a Service and a Secret."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snapshots.s3 import BUCKET, KEY, SECRET, endpoint_program

from e2e.cluster.pods import MOUNT, pod
from e2e.cluster.release import Release

Json = Any
NAME = "s3"
PORT = 9000
CREDENTIALS = {
    "AWS_ENDPOINT_URL": f"http://{NAME}:{PORT}",
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
}
SECRET_NAME = "backup-credentials"


@contextmanager
def s3_in(release: Release, claim: str, directory: Path) -> Iterator[str]:
    """The URL of its bucket; `directory` is what `claim` holds."""
    program, content = directory / "s3-endpoint", directory / NAME
    shutil.copy(endpoint_program(), program)
    for each in (content, content / BUCKET):
        each.mkdir()
        each.chmod(0o777)
    command = [
        f"{MOUNT}/{program.name}", "serve", "s3", f"{MOUNT}/{content.name}",
        "--addr", f":{PORT}", "--auth-key", f"{KEY},{SECRET}",
        "--config", "/tmp/none.conf", "--cache-dir", "/tmp/cache",
    ]  # fmt: skip
    made = pod(release.namespace, NAME, claim, command, port=PORT)
    try:
        release.apply([made, *_service_and_secret(release.namespace)])
        release.until(lambda: (it := release.pod(NAME)) and it.is_ready, "S3 does not start")
        yield f"s3://{BUCKET}/logs"
    finally:
        names = (f"pod/{NAME}", f"service/{NAME}", f"secret/{SECRET_NAME}")
        release.kubectl("delete", *names, "--ignore-not-found", "--timeout=60s")


def _service_and_secret(namespace: str) -> list[Json]:
    service = {"selector": {"app": NAME}, "ports": [{"port": PORT}]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": namespace},
            "spec": service,
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET_NAME, "namespace": namespace},
            "stringData": CREDENTIALS,
        },
    ]
