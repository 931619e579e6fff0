"""Ending processes: asked first, killed after a while, and seen to end.

By pidfds, so that nobody else is ever hit.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping

from shardlog.local.layout import COORDINATOR

HAND_OVER_MS = 300
KILL_TIMEOUT_MS = 5000


def stop_in_order(processes: Mapping[str, int], grace_ms: int) -> list[str]:
    """Nodes first: as long as there is a coordinator they can hand over."""
    nodes = {name: process for name, process in processes.items() if name != COORDINATOR}
    rest = {name: process for name, process in processes.items() if name == COORDINATOR}
    return stop_processes(nodes, grace_ms) + stop_processes(rest, grace_ms)


def stop_processes(processes: Mapping[str, int], grace_ms: int) -> list[str]:
    """All of these pidfds at once; returns the names of those that had to be killed.

    A node that is told once waits until others lead what it led; all others stop too, so after a
    moment it is told again, and waits no longer.
    """
    left = list(processes)
    for patience_ms in (min(HAND_OVER_MS, grace_ms), grace_ms):
        for name in left:
            # One that is paused hears of it only when it goes on.
            send(processes[name], signal.SIGTERM)
            send(processes[name], signal.SIGCONT)
        left = await_ends({name: processes[name] for name in left}, patience_ms)
    for name in left:
        send(processes[name], signal.SIGKILL)
    await_ends({name: processes[name] for name in left}, KILL_TIMEOUT_MS)
    return left


def send(process: int, number: signal.Signals) -> None:
    """To nobody, if it has ended."""
    try:
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return


def await_ends(processes: Mapping[str, int], timeout_ms: int) -> list[str]:
    """Who is still there when time is up."""
    deadline = time.monotonic() + timeout_ms / 1000
    waiting = {process: name for name, process in processes.items()}
    poll = select.poll()
    for process in waiting:
        poll.register(process, select.POLLIN)
    while waiting:
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0:
            break
        for process, _ in poll.poll(left_ms):
            poll.unregister(process)
            del waiting[process]
    return list(waiting.values())


def close_all(processes: Mapping[str, int]) -> None:
    for process in processes.values():
        os.close(process)
