"""What must hold in the explorer: the invariants of `checkers`, over states instead of runs.

The canonical chain holds everything that any leader ever called committed, each entry with the
epoch in which it was.  It is part of the state, and grows only.
"""

from __future__ import annotations

from typing import NamedTuple

from shardlog.protocol.entry import Header, Kind, Member
from shardlog.protocol.messages import Appended, Commit, Envelope, Prepare
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.protocol.states import Role
from shardlog.sim.checkers import _check_record as check_record
from shardlog.sim.failures import SafetyFailure


class Link(NamedTuple):
    """An entry of the canonical chain."""

    base: int
    end: int
    checksum: int
    epoch: int
    committed_in: int
    session: int
    request: int


Chain = tuple[Link, ...]


def judged(chain: Chain, replica: Replica) -> Chain:
    """The chain with what this replica calls committed, if the replica agrees with the rest."""
    known = {link.base: link for link in chain}
    grown = list(chain)
    for header in replica.log.between(replica.log.first, replica.commit):
        link = known.get(header.base)
        if link is None:
            grown.append(_next(grown, replica, header))
        elif link.checksum != header.checksum:
            raise SafetyFailure(
                "NoLogDivergence",
                f"{replica.member} committed {header.id}, where ({link.epoch},{link.base}) "
                "had been committed",
            )
    if replica.lead is not None and replica.lead.serving:
        _check_leader(grown, replica)
    elif replica.role in (Role.FOLLOWER, Role.STANDBY):
        _check_follower(grown, replica)
    return tuple(grown)


def _next(chain: list[Link], replica: Replica, header: Header) -> Link:
    last = chain[-1] if chain else None
    follows = last is None or (header.base == last.end and header.parent == last.checksum)
    if not follows or (last is not None and header.epoch < last.epoch):
        raise SafetyFailure(
            "NoLogDivergence",
            f"{replica.member} committed {header.id}, which does not continue the chain",
        )
    request = header.request if header.kind is Kind.DATA else 0
    if request and any((link.session, link.request) == (header.session, request) for link in chain):
        raise SafetyFailure(
            "NoLossOfConfirmedWrite",
            f"request {request} of session {header.session} stands twice",
        )
    return Link(
        header.base,
        header.end,
        header.checksum,
        header.epoch,
        replica.epoch,
        header.session,
        request,
    )


def _check_leader(chain: list[Link], replica: Replica) -> None:
    """Everything that was committed before this epoch is in the leader's log."""
    for link in chain:
        if link.committed_in < replica.epoch and not _holds(replica, link):
            raise SafetyFailure(
                "NoLossOfConfirmedWrite",
                f"{replica.member} leads epoch {replica.epoch} without ({link.epoch},{link.base})",
            )


def _check_follower(chain: list[Link], replica: Replica) -> None:
    """A follower may be told at any time what its leader knows to be committed.

    Its log is a prefix of that leader's, so as far as it reaches it must agree with the chain.
    """
    for link in chain:
        reaches = link.end <= replica.log.end and link.committed_in <= replica.epoch
        if reaches and not _holds(replica, link):
            raise SafetyFailure(
                "NoLogDivergence",
                f"{replica.member} follows epoch {replica.epoch} with another entry in place of "
                f"({link.epoch},{link.base})",
            )


def _holds(replica: Replica, link: Link) -> bool:
    log = replica.log
    header = log.starting_at(link.base)
    if link.base < log.first:
        return True
    return header is not None and header.checksum == link.checksum


def check_reply(chain: Chain, reply: Appended) -> None:
    """A client is told an offset only if its write stands there for ever."""
    for link in chain:
        if (link.base, link.session, link.request) == (reply.base, reply.session, reply.request):
            return
    raise SafetyFailure(
        "NoLossOfConfirmedWrite", f"a client was told {reply.base}, which is not committed"
    )


def check_written(before: Shard | None, record: Shard) -> None:
    """LegalLeaderAndEnsemble, and the record's epoch never falls."""
    check_record(record)
    if before is not None and record.epoch < before.epoch:
        raise SafetyFailure("LegalLeaderAndEnsemble", "the record's epoch fell")


def check_message(envelope: Envelope) -> None:
    """ValidMessages."""
    message = envelope.message
    to = Member(envelope.dst, envelope.dst_incarnation)
    if envelope.src == envelope.dst:
        raise SafetyFailure("ValidMessages", f"{envelope.src} addresses itself: {message}")
    if isinstance(message, Prepare) and message.change.old == to:
        raise SafetyFailure("ValidMessages", f"{to} is asked to prepare its own removal")
    if isinstance(message, Commit) and message.change.new == to:
        raise SafetyFailure("ValidMessages", f"{to} is asked to commit itself as the new node")
