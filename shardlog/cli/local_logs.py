"""`shardlog local logs`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli.local_cluster import complete_process, directory_option, failures_as_exit_codes

if TYPE_CHECKING:
    from shardlog.local.layout import Layout

LOOK_MS = 200
PIECE_BYTES = 64 << 10
TAIL_BYTES_MAX = 1 << 20


@click.command()
@click.argument("name", required=False, shell_complete=complete_process)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True,
              help="How many of the last lines of each log.")  # fmt: skip
@directory_option
def logs(name: str | None, follow: bool, lines: int, layout: Layout) -> None:
    """Show the log of a process; without NAME, of all."""
    with failures_as_exit_codes():
        from shardlog.local.failures import NoSuchProcess
        from shardlog.local.processes import names

        known = names(layout)
        if name is not None and name not in known:
            raise NoSuchProcess(name, known)
    chosen = [name] if name else known
    width = max(map(len, chosen)) if name is None else 0
    followed = [_Log(layout.log(each), each.ljust(width) if width else "") for each in chosen]
    for log in followed:
        log.show_last(lines)
    while follow:
        time.sleep(LOOK_MS / 1000)
        for log in followed:
            log.show_new()


class _Log:
    """One log file, and how far it has been shown."""

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        self._at = 0
        # The beginning of a line whose end is not written yet.
        self._rest = b""

    def show_last(self, lines: int) -> None:
        self._at = max(0, self._size() - TAIL_BYTES_MAX)
        self._show(deque(self._new_lines(), maxlen=lines))

    def show_new(self) -> None:
        if self._size() < self._at:
            self._at, self._rest = 0, b""
        self._show(self._new_lines())

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _new_lines(self) -> Iterator[bytes]:
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            file.seek(self._at)
            while piece := file.read(PIECE_BYTES):
                self._at += len(piece)
                *whole, self._rest = (self._rest + piece).split(b"\n")
                yield from whole

    def _show(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            text = line.decode(errors="replace")
            click.echo(f"{self.label}  {text}" if self.label else text)
