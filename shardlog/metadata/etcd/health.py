"""How etcd is, told for people: which members answer, who leads them, how full they are.

For a readiness page and for "what is it waiting for"; the store itself finds out by asking.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from shardlog.metadata.etcd.calls import STATUS
from shardlog.metadata.etcd.links import Links
from shardlog.metadata.failures import MetadataFailure, NotPermitted
from shardlog.metadata.generated import etcd_pb2 as pb

NO_SPACE = "NOSPACE"
"""etcd's name for the alarm of a member whose quota is used up."""


@dataclass(frozen=True, slots=True)
class MemberHealth:
    """`trouble` is "" for a member that answers and has nothing to complain about."""

    endpoint: str
    answers: bool
    trouble: str
    version: str = ""
    is_leader: bool = False
    db_bytes: int = 0
    db_bytes_in_use: int = 0


@dataclass(frozen=True, slots=True)
class EtcdHealth:
    members: tuple[MemberHealth, ...]

    @property
    def answering(self) -> int:
        return sum(member.answers for member in self.members)

    def __str__(self) -> str:
        """One line."""
        troubles = [f"{each.endpoint}: {each.trouble}" for each in self.members if each.trouble]
        return "; ".join([f"{self.answering} of {len(self.members)} members answer", *troubles])


async def health_of(links: Links) -> EtcdHealth:
    """Asks every endpoint, at once; takes no longer than one connect timeout."""
    endpoints = links.settings.endpoints
    return EtcdHealth(tuple(await asyncio.gather(*(_member(links, each) for each in endpoints))))


async def _member(links: Links, endpoint: str) -> MemberHealth:
    try:
        told = await links.asked_apart(endpoint, STATUS, pb.StatusRequest())
    except NotPermitted:
        return MemberHealth(endpoint, True, "", version="unknown: needs the root role")
    except MetadataFailure as failure:
        return MemberHealth(endpoint, False, getattr(failure, "why", str(failure)))
    return MemberHealth(
        endpoint,
        True,
        _trouble(told),
        told.version,
        told.leader == told.header.member_id,
        told.dbSize,
        told.dbSizeInUse,
    )


def _trouble(told: Any) -> str:
    if not told.leader:
        return "knows no leader"
    return "; ".join([*told.errors, *(["is a learner"] if told.isLearner else [])])
