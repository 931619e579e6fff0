"""Files that are not in memory."""

from __future__ import annotations

import os
from pathlib import Path


def forget_pages(directory: Path) -> None:
    """Take the files below it out of the page cache, as far as nobody maps them."""
    os.sync()
    for path in directory.rglob("*"):
        try:
            if not path.is_file():
                continue
            fd = os.open(path, os.O_RDONLY)
        except OSError:  # gone meanwhile
            continue
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
