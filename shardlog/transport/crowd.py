"""How many calls or streams are open at once: of everybody, and of each address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Crowded(Exception):  # noqa: N818 - named after what happened
    """There is no room for another one."""


class Crowd:
    """Counts them while they run."""

    def __init__(self, streams_max: int, per_peer_max: int) -> None:
        self._streams_max = streams_max
        self._per_peer_max = per_peer_max
        self._of_peers: Counter[str] = Counter()

    @property
    def streams(self) -> int:
        return self._of_peers.total()

    @contextmanager
    def one_more(self, peer: str) -> Iterator[None]:
        """`peer` as gRPC names it, its port last; raises `Crowded`."""
        host = peer.rpartition(":")[0]
        if self._of_peers[host] >= self._per_peer_max:
            raise Crowded(f"{self._per_peer_max} streams of one address are open")
        if self.streams >= self._streams_max:
            raise Crowded(f"{self._streams_max} streams are open")
        self._of_peers[host] += 1
        try:
            yield
        finally:
            self._of_peers[host] -= 1
            if not self._of_peers[host]:
                del self._of_peers[host]
