"""A pid file that is locked for as long as the process lives that it names.

The starter locks the file and hands the open file to the process it starts, which keeps it until it
ends, however it ends.  So whether somebody is there is a question to the kernel: a number left
behind, which may be another program's by now, is never believed.  The number is written by the new
process itself, before it becomes the program (`becoming.py`): a starter that is killed at any
moment leaves either nobody, or somebody who can be found.

These are locks of the open file (`F_OFD_SETLK`), not of a process, which alone can be inherited
and asked about without being taken.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# struct flock of 64-bit Linux: type, whence, start, length (0: to the end), pid.
_FLOCK = "hhqqi0q"
_WHOLE = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

_BECOMING = (sys.executable, "-I", "-S", str(Path(__file__).with_name("becoming.py")))


class PidFile:
    """One process of the cluster, running or not."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self) -> int | None:
        """The open file, locked; None if somebody has it."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE)
            os.ftruncate(file, 0)
        except (BlockingIOError, PermissionError):
            os.close(file)
            return None
        except OSError:
            os.close(file)
            raise
        return file

    def is_held(self) -> bool:
        return self._read()[0]

    def pid(self) -> int | None:
        """Of who is running; None if nobody is, or has just been started."""
        held, pid = self._read()
        return pid if held else None

    def open_process(self) -> int | None:
        """A pidfd of who is running; None as for `pid`.

        Looked at twice: a process that ended meanwhile may have left its number to a stranger.
        """
        before = self._read()
        if not before[0] or before[1] is None:
            return None
        try:
            process = os.pidfd_open(before[1])
        except ProcessLookupError:
            return None
        if self._read() != before:
            os.close(process)
            return None
        return process

    def signal(self, number: signal.Signals) -> bool:
        """Whether there was somebody to send it to."""
        process = self.open_process()
        if process is None:
            return False
        try:
            signal.pidfd_send_signal(process, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(process)
        return True

    def _read(self) -> tuple[bool, int | None]:
        """Whether somebody has it, and what is written there.

        The lock of a starter is one for writing, which takes the right to write.  Whoever may only
        read can lock against writing, and is not believed: the number would be anybody's.
        """
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False, None
        try:
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE)
            text = os.pread(file, 32, 0).strip()
        finally:
            os.close(file)
        held = struct.unpack(_FLOCK, found)[0] == fcntl.F_WRLCK
        return held, int(text) if text.isdigit() else None


def start(
    held: int, command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a program that holds its pid file; `held` is closed here.

    It gets a session of its own, so that Ctrl-C and the end of a terminal do not reach it.
    """
    return _started(held, "child", command, environment, log)


def start_orphan(
    held: int, command: Sequence[str], environment: Mapping[str, str], log: Path
) -> None:
    """Start a program that is nobody's child, and has nobody who must wait for it."""
    _started(held, "orphan", command, environment, log).wait()


def _started(
    held: int, kind: str, command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    try:
        with open(log, "ab") as out:
            return subprocess.Popen(
                [*_BECOMING, str(held), kind, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                env=dict(environment),
                start_new_session=True,
                pass_fds=(held,),
            )
    finally:
        os.close(held)
