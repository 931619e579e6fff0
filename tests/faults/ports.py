"""Ports that nobody else takes while their owner is dead for a moment.

A port of a killed process is free until it is back, so whoever looks for a free one may find it.
Clusters of these tests therefore claim a block of ports each, by a lock, below those that
`shardlog local` and the system choose from.
"""

from __future__ import annotations

import fcntl
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardlog.local.cluster_file import HOST, is_free

FIRST, BLOCK, BLOCKS = 10_000, 40, 120


@contextmanager
def claimed_ports() -> Iterator[Iterator[int]]:
    """As many as a block has."""
    directory = Path(tempfile.gettempdir()) / f"shardlog-faults-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    for number in random.sample(range(BLOCKS), BLOCKS):
        with (directory / f"{number}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            first = FIRST + number * BLOCK
            ports = (port for port in range(first, first + BLOCK) if is_free(f"{HOST}:{port}"))
            yield ports
            return
    raise AssertionError("all ports are claimed")
