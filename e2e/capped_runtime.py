"""An OCI runtime for machines that lack a capability: runc, asked for no more than there is.

A privileged container asks for all capabilities, and runc fails where its own process may not have
one of them.  Docker runs this instead of runc (`e2e/docker_daemon.py`); it takes the missing ones
out of what is asked for, and becomes runc.  It is a script of its own that imports nothing of ours,
since it runs several times for every container and process.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

RUNTIME = "runc"
LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")
NAMES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ
PERFMON BPF CHECKPOINT_RESTORE
"""
"""In the order of their numbers."""


def missing_capabilities() -> set[str]:
    """Those of the kernel that this process does not have, as OCI names them."""
    held = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            held = int(line.split()[1], 16)
    last = int(LAST_CAPABILITY.read_text())
    return {
        f"CAP_{name}" for bit, name in enumerate(NAMES.split()[: last + 1]) if not held >> bit & 1
    }


def without(process: Any, missing: set[str]) -> None:
    """Take them out of every set of a process, as `config.json` and `exec --process` have it."""
    for kind, names in (process.get("capabilities") or {}).items():
        process["capabilities"][kind] = [name for name in names if name not in missing]


def cap(arguments: list[str], missing: set[str]) -> None:
    """Rewrite the file that these arguments of runc name, if they begin a process."""
    for word, following in itertools.pairwise(arguments):
        if word == "--bundle":
            path = Path(following) / "config.json"
            document = json.loads(path.read_text())
            without(document["process"], missing)
        elif word == "--process":
            path = Path(following)
            document = json.loads(path.read_text())
            without(document, missing)
        else:
            continue
        path.write_text(json.dumps(document))


if __name__ == "__main__":
    cap(sys.argv[1:], missing_capabilities())
    os.execvp(RUNTIME, [RUNTIME, *sys.argv[1:]])
