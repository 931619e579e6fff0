"""`shardlog-health URL`: whether a process of ours is well, for those who can only run a command.

Container engines other than Kubernetes ask by command, every few seconds; so this imports as little
as it can.  Status 0 if the answer is 200; else 1, and one line says what it was.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

TIMEOUT_S = 4.0


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    url = urlsplit(arguments[0]) if len(arguments) == 1 else None
    if url is None or url.scheme != "http" or not url.hostname:
        print("usage: shardlog-health http://HOST:PORT/PATH", file=sys.stderr)
        return 2
    connection = HTTPConnection(url.hostname, url.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", url.path or "/healthz")
        status = connection.getresponse().status
    except (OSError, HTTPException) as failure:
        print(f"shardlog-health: {url.geturl()}: {failure}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != 200:
        print(f"shardlog-health: {url.geturl()}: answers {status}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    main()
