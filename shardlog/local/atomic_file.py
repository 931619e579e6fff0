"""A file that is there as a whole, old or new, whoever is killed."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, text: str, *, durable: bool) -> None:
    """`durable`: also after a power cut."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
