"""Which extra a missing library belongs to, and what to tell who has not installed it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_EXTRAS = {
    "blake3": "snapshot",
    "duckdb": "query",
    "google": "node",
    "grpc": "node",
    "grpc_health": "node",
    "grpc_reflection": "node",
    "kopf": "operator",
    "lz4": "compression",
    "matplotlib": "bench",
    "obstore": "snapshot",
    "prometheus_client": "node",
    "psutil": "bench",
    "numpy": "query",
    "pyarrow": "query",
    "pydantic": "node",
    "pydantic_settings": "node",
    "pyspark": "spark",
    "structlog": "node",
    "uvloop": "node",
    "zstandard": "compression",
}
_USAGE = 2


def remedy(missing: ModuleNotFoundError, extra: str | None = None) -> str | None:
    """One line that says what to install; None if no extra has it.  `extra` is preferred."""
    module = (missing.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    return f"{module} is not installed: pip install 'shardlog[{extra or _EXTRAS[module]}]'"


@contextmanager
def required(program: str, extra: str) -> Iterator[None]:
    """Around imports: ends the program with one line if a library of an extra is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if told := remedy(missing, extra):
            print(f"{program}: {told}", file=sys.stderr)
            raise SystemExit(_USAGE) from missing
        raise
