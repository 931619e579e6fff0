"""The requests of a session that are not answered yet, in the order of their numbers.

A leader keeps the replies to a session's latest requests only, so that a retry finds its own
among them the window spans no more numbers than that, from the first one unanswered.  After a
rewind everything unanswered is sent again, in order, before anything new.
"""

from __future__ import annotations

from collections import deque

from shardlog.client.batching import Request


class Window:
    """`sent` of the requests have been sent on the present connection."""

    __slots__ = ("_last", "_sent", "requests", "requests_max")

    def __init__(self, requests_max: int) -> None:
        self.requests_max = requests_max
        self.requests: deque[Request] = deque()
        self._sent = 0
        self._last = 0

    @property
    def has_room(self) -> bool:
        return len(self.requests) < self.requests_max

    @property
    def unsettled(self) -> list[Request]:
        """Those whose callers still wait."""
        return [request for request in self.requests if not request.settled]

    def start_after(self, last: int) -> None:
        """The session has requests up to this one already."""
        assert not self.requests, "requests have numbers already"
        self._last = last

    def admit(self, request: Request) -> None:
        """Give it the session's next number."""
        assert self.has_room, "more requests are unanswered than may be"
        self._last += 1
        request.number = self._last
        self.requests.append(request)

    def to_send(self) -> Request | None:
        """The next that has not been sent here; it counts as sent now."""
        while self._sent < len(self.requests):
            request = self.requests[self._sent]
            self._sent += 1
            if not request.answered:
                request.sends += 1
                return request
        return None

    def unsend(self) -> None:
        """The last one given by `to_send` did not get out."""
        self._sent -= 1
        self.requests[self._sent].sends -= 1

    def rewind(self, number: int = 0) -> None:
        """All, or from this one on, count as not sent."""
        before = number - self.requests[0].number if self.requests else 0
        self._sent = min(self._sent, max(0, before))

    def came_to_nothing(self, number: int) -> None:
        """A node said of one send of this request that it appended nothing."""
        index = number - self.requests[0].number if self.requests else -1
        if 0 <= index < len(self.requests) and self.requests[index].sends:
            self.requests[index].sends -= 1

    def answered(self, number: int) -> Request | None:
        """The request with this number; None if it is not here, or was answered before."""
        if not self.requests:
            return None
        index = number - self.requests[0].number
        if not 0 <= index < len(self.requests):
            return None
        request = self.requests[index]
        if request.answered:
            return None
        request.answered = True
        while self.requests and self.requests[0].answered:
            self.requests.popleft()
            self._sent = max(0, self._sent - 1)
        return request

    def cut(self, number: int) -> list[Request]:
        """Take back this one and all behind it; those that were not answered come back."""
        taken: list[Request] = []
        while self.requests and self.requests[-1].number >= number:
            taken.append(self.requests.pop())
        self._sent = min(self._sent, len(self.requests))
        return [request for request in reversed(taken) if not request.answered]

    def clear(self) -> list[Request]:
        """For a new session: numbers start from 1.  Those that were not answered come back."""
        left = [request for request in self.requests if not request.answered]
        self.requests.clear()
        self._sent = self._last = 0
        return left
