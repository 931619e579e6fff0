"""The machine in words, without its name, and whether it is fit for a comparison."""

from __future__ import annotations

import os
import platform
import shutil
import time
from pathlib import Path

import psutil

CORES_MIN = 2
MEMORY_BYTES_MIN = 7 << 30
DISK_BYTES_MIN = 20 << 30
BUSY_MAX = 0.25
"""The share of all cores that others may use."""
LOOK_S = 3.0


def described() -> str:
    model = "an unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    memory = psutil.virtual_memory().total / (1 << 30)
    linux = platform.release().partition("-")[0]
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {linux}"
        f", Python {platform.python_version()}"
    )


def too_small(directory: Path) -> list[str]:
    """What it lacks; empty if nothing."""
    found = []
    cores = len(os.sched_getaffinity(0))
    if cores < CORES_MIN:
        found.append(f"{cores} core, {CORES_MIN} are needed")
    if psutil.virtual_memory().total < MEMORY_BYTES_MIN:
        found.append(f"less than {MEMORY_BYTES_MIN >> 30} GiB of memory")
    if shutil.disk_usage(directory).free < DISK_BYTES_MIN:
        found.append(f"less than {DISK_BYTES_MIN >> 30} GiB of free disk")
    return found


def busy(wait_s: float) -> float:
    """The share of all cores that others use, once it is low or the time is over."""
    deadline = time.monotonic() + wait_s
    while True:
        share = psutil.cpu_percent(LOOK_S) / 100
        if share <= BUSY_MAX or time.monotonic() > deadline:
            return share
