"""A DNS server that knows no name, for containers that reach no other: `python no_such_name.py IP`.

Docker answers nothing where its own servers do not, and whoever asks waits until the time is up.
"""

from __future__ import annotations

import socket
import sys

PORT = 53
HEADER_BYTES = 12
QUERY_BYTES_MAX = 4096
NO_SUCH_NAME = b"\x81\x83"
"""Flags: a response, recursion was asked for and is there, NXDOMAIN."""


def answer(query: bytes) -> bytes:
    """The same question, and no answer; nothing for what is no query of one question."""
    end = query.find(b"\0", HEADER_BYTES) + 5
    if query[4:6] != b"\0\1" or len(query) < end or end < HEADER_BYTES + 5:
        return b""
    return query[:2] + NO_SUCH_NAME + b"\0\1" + bytes(6) + query[HEADER_BYTES:end]


def serve(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as served:
        served.bind((address, PORT))
        while True:
            query, caller = served.recvfrom(QUERY_BYTES_MAX)
            if told := answer(query):
                served.sendto(told, caller)


if __name__ == "__main__":
    serve(sys.argv[1])
