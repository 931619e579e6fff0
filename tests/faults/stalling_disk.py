"""A node whose disk stalls: syncs wait for as long as a certain file exists.

Run as `python stalling_disk.py FILE`, with the settings of a node in the environment.  What stalls
are the system's own calls, below everything that is Shardlog's.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

LOOK_MS = 10
Sync = Callable[[Any], None]


def stalling(sync: Sync, stalled: str) -> Sync:
    def wait_and_sync(file: Any) -> None:
        while os.path.exists(stalled):
            time.sleep(LOOK_MS / 1000)
        sync(file)

    return wait_and_sync


if __name__ == "__main__":
    vars(os).update(
        fsync=stalling(os.fsync, sys.argv[1]), fdatasync=stalling(os.fdatasync, sys.argv[1])
    )
    del sys.argv[1:]

    from shardlog.storage import real_files
    from shardlog_node.main import main

    real_files.SYNCFS_TELLS = False  # every file is synced by itself
    main()
