"""What the replicas of a shard say themselves, asked for once: for people, never for decisions."""

from __future__ import annotations

import asyncio

from shardlog.coordinator.driver import Control, Unanswered
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Envelope, StatusReport, StatusRequest
from shardlog.protocol.shard import Shard

STATUS_TIMEOUT_MS = 1000


async def ask_members(asker: str, control: Control, shard: Shard) -> list[StatusReport]:
    """The reports of those that answer, nodes on their way in among them."""
    members = dict.fromkeys(shard.fencing_ensemble)
    if shard.change and shard.change.new:
        members[shard.change.new] = None
    if shard.joining and shard.joining.incarnation:
        members[shard.joining.member] = None
    answers = await asyncio.gather(*[ask_member(asker, control, shard, each) for each in members])
    return [answer for answer in answers if answer is not None]


async def ask_member(
    asker: str, control: Control, shard: Shard, member: Member
) -> StatusReport | None:
    """What one replica says, None if it does not answer in `STATUS_TIMEOUT_MS`."""
    request = Envelope(
        shard.name, asker, 0, member.node, member.incarnation, StatusRequest(shard.epoch)
    )
    try:
        answer = await control.call(request, STATUS_TIMEOUT_MS)
    except Unanswered:
        return None
    found = answer.message if answer else None
    return found if isinstance(found, StatusReport) else None
