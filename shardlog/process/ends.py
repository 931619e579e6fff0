"""How a program of Shardlog ends: with one line for the person, and a number for the script.

What it is told wrong is found before anything is begun.  What nobody expected is a bug, and shows
where it happened.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeVar

from shardlog.extras import remedy
from shardlog.process.settings import BadSettings

Settings = TypeVar("Settings")


class Exit(IntEnum):
    OK = 0
    USAGE = 2
    CRASH = 3
    DAMAGED = 7
    UNAVAILABLE = 8
    INTERRUPTED = 130


def run_program(
    name: str,
    load: Callable[[Sequence[str]], Settings],
    work: Callable[[Settings], Exit],
    arguments: Sequence[str],
) -> Exit:
    """Until `work` has ended."""
    try:
        settings = load(arguments)
    except BadSettings as failure:
        return told(name, Exit.USAGE, failure)
    try:
        return work(settings)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except ModuleNotFoundError as missing:
        if remedied := remedy(missing, name.removeprefix("shardlog-")):
            return told(name, Exit.USAGE, remedied)
        traceback.print_exc()
        return Exit.CRASH
    except Exception:
        traceback.print_exc()
        return Exit.CRASH


def told(name: str, status: Exit, failure: BaseException | str) -> Exit:
    print(f"{name}: {failure}", file=sys.stderr)
    return status
