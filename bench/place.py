"""Where a benchmark may write."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path


def place(given: str) -> str:
    """The directory that was given on the command line, made if it is not there yet."""
    try:
        Path(given).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentTypeError(f"{given}: {error.strerror}") from error
    return given
