"""Run as a script between a starter and a program: writes its own number, then becomes the program.

    python becoming.py FILE child|orphan PROGRAM ARGUMENT...

A starter may have threads, of gRPC for one, and whatever is done between its fork and the program
is done with their locks held by nobody: it may hang or abort.  So nothing is: this script is a
program of its own.  It imports nothing of ours, and is there for some milliseconds.
"""

import os
import sys


def become(file: int, kind: str, command: list[str]) -> None:
    if kind == "orphan" and os.fork():
        os._exit(0)
    os.pwrite(file, b"%d\n" % os.getpid(), 0)
    os.execvp(command[0], command)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
