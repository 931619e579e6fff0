"""A real S3 endpoint over a directory: `rclone serve s3`, built from its Go module once."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep

SOURCE = Path(__file__).parent.parent / "s3_endpoint"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "shardlog" / "bin"
STARTS_IN_S = 60
KEY, SECRET = "shardlog-id", "shardlog-secret"
BUCKET = "backups"


def endpoint_program() -> Path:
    """The program; its name tells what it was made of."""
    made_of = sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        made_of.update((SOURCE / name).read_bytes())
    program = CACHE / f"s3-endpoint-{made_of.hexdigest()[:16]}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        making = program.with_suffix(f".{os.getpid()}")
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
        build = ["nice", "-n", "15", "go", "build", "-trimpath", "-o", str(making), "."]
        subprocess.run(build, cwd=SOURCE, env=environment, check=True)
        making.rename(program)
    return program


@contextmanager
def s3_endpoint(directory: Path) -> Iterator[dict[str, str]]:
    """What the environment must say to use it; it has one bucket."""
    (directory / "content" / BUCKET).mkdir(parents=True)
    log = directory / "log"
    command = [
        str(endpoint_program()), "serve", "s3", str(directory / "content"),
        "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}",
        "--config", str(directory / "none.conf"), "--cache-dir", str(directory / "cache"),
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield {
            "AWS_ENDPOINT_URL": _address(process, log),
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = monotonic() + STARTS_IN_S
    while monotonic() < deadline and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        sleep(0.05)
    raise AssertionError(f"no S3 endpoint: {log.read_text()}")
