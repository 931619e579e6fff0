"""What can go wrong between two processes, by whose fault.

Three kinds, because callers do three different things.  `Malformed`: the other side sent what no
correct program sends, so the connection ends.  `Unavailable`: nobody can say whether the request
was done; try elsewhere or again.  `Rejected`: it certainly was not done, and the same request
would be rejected again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardlog.transport.frames import Frame


class TransportFailure(Exception):  # noqa: N818 - named after what happened
    """Base of all that this package raises."""


class Malformed(TransportFailure):
    """The other side's bytes cannot be understood."""


class MalformedFrame(Malformed):
    """No frame, or not one that may come here.

    `before` holds the frames that came whole before the bad one, in the same piece of data.
    """

    def __init__(self, reason: str, before: list[Frame] | None = None) -> None:
        super().__init__(reason)
        self.before = before or []


class FrameTooLarge(MalformedFrame):
    """Longer than the receiver accepts."""


class MalformedMessage(Malformed):
    """A protobuf message that stands for no message of the protocol."""


class MalformedBatch(Malformed):
    """A body that is no batch of records."""


class Unavailable(TransportFailure):
    """Whether the request was done is not known."""


class Unreachable(Unavailable):
    """No connection, or it broke."""


class ClosedUngreeted(Unreachable):
    """The other side accepted the connection, and closed it without a greeting."""


class DeadlineExceeded(Unavailable):
    """No answer within the time that the caller gave."""


class SilentConnection(Unavailable):
    """Open by its looks, but nothing has come for too long."""


class Rejected(TransportFailure):
    """The other side will not have it."""


class VersionMismatch(Rejected):
    """No version in common."""


class UnknownCall(Rejected):
    """The other side is of an older version, which has no such call."""


class NotPermitted(Rejected):
    """Certificates or credentials do not allow it."""


class ConnectionRefused(Rejected):
    """The other side said GOODBYE, with this reason."""


class OutgoingFull(TransportFailure):
    """More bytes wait to be sent than may wait: the caller did not heed `writable`."""
