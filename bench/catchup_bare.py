"""The yardstick of catching up: one TCP stream, written and synced, and nothing else.

Two processes.  One sends so many bytes from memory, the other receives pieces of one MiB, which is
what a node writes together, writes each and syncs it.  Into a new file whose blocks are reserved,
which is what a log takes that grows; or into blocks that were written before and are still in
memory, which nobody can do who has something new to keep.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from limit_parts import child, line_of

PIECE_BYTES = 1 << 20


def receive(path: str, size: int, written_before: bool) -> None:
    """In a process of its own: says where it listens, then how long it took."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(fd, 0, size)
    if written_before:
        blank = bytes(PIECE_BYTES)
        for position in range(0, size, PIECE_BYTES):
            os.pwrite(fd, blank, position)
    os.fsync(fd)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, _ = listening.accept()
    piece = memoryview(bytearray(PIECE_BYTES))
    begun = time.perf_counter()
    position = 0
    with connection:
        while position < size:
            got = 0
            while got < PIECE_BYTES and (more := connection.recv_into(piece[got:])):
                got += more
            if not got:
                break
            os.pwrite(fd, piece[:got], position)
            os.fdatasync(fd)
            position += got
    print(time.perf_counter() - begun, flush=True)
    os.close(fd)


def bare_bytes_per_s(directory: Path, size: int, written_before: bool) -> float:
    """With a file there, which is gone afterwards."""
    path = directory / "bare"
    size -= size % PIECE_BYTES
    try:
        with child(
            sys.executable, __file__, str(path), str(size), str(int(written_before))
        ) as process:
            port = int(line_of(process))
            piece = os.urandom(PIECE_BYTES)
            with socket.create_connection(("127.0.0.1", port)) as connection:
                for _ in range(size // PIECE_BYTES):
                    connection.sendall(piece)
            return size / float(line_of(process))
    finally:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    receive(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1")
