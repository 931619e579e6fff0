"""Replicas in the explorer: one event, with all that its syncs bring, is one step.

Disk effects are performed and synced within the step.  A sync that takes longer only delays an
answer, and the explorer delays every answer for as long as it likes, so nothing is lost by that
but one thing: a crash in between.  `crashes` puts it back.  It cuts the step after each of its
effects, with what was written and not synced by then lost or kept, in every combination that the
barriers allow.

Time stands still.  What depends on it (resends, suspicion, pauses) is either an action of its own
in `explore_world`, or does not happen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from shardlog.protocol.effects import (
    Barrier,
    Effect,
    Erase,
    Event,
    Format,
    Limits,
    Received,
    Recovered,
    ResetLog,
    Send,
    SendEntries,
    SendFetched,
    ServeRead,
    Superblock,
    Sync,
    Synced,
    TrimLog,
    TruncateLog,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry, Header, Member
from shardlog.protocol.history import OPEN_END, clip
from shardlog.protocol.messages import (
    Ack,
    BecameLeader,
    Entries,
    Envelope,
    Fence,
    FenceAnswer,
    Fetched,
    Kept,
    Message,
)
from shardlog.protocol.replica import Replica
from shardlog.protocol.sessions import UNNAMED_LIMITS, SessionTable
from shardlog.protocol.states import Role
from shardlog.sim.explore_messages import Reduction
from shardlog.sim.explore_values import copied
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.seal import seal

NOW_MS = 1000
HEARD_MS = NOW_MS - 500
"""Followers were heard so long ago that no quorum is fresh, and are not looked for yet."""
SHARD = "s"

NOTHING_KEPT = Kept((), 0, 0)
"""What had to be kept is in the log once a leader serves."""

LIMITS = Limits(repair_tries_max=2, batch_entries_max=1)


class Image(NamedTuple):
    """What is durable on one disk; no superblock if there is no replica."""

    superblock: Superblock | None
    first: int
    boundary: int
    headers: tuple[Header, ...]
    ridden_commit: int


EMPTY_IMAGE = Image(None, 0, GENESIS_CHECKSUM, (), 0)


@dataclass(frozen=True, slots=True)
class Taken:
    """What one step did: the replica after it, what it sent, and what it wrote, in order."""

    after: Replica
    sent: tuple[Envelope, ...]
    disk: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Crashed:
    """A crash within a step: `witness` is the replica as it died, `after` as it came back."""

    witness: Replica
    after: Replica
    image: Image
    sent: tuple[Envelope, ...]


def settled(replica: Replica, reduction: Reduction) -> Replica:
    """The canonical form, without what can make no difference.

    While time stands still no moment does.  Unless it leads, a replica does nothing with its commit
    offset but refuse to cut below it, which must not be asked of it anyway; so it is made to forget
    it, as by a restart from an old superblock.  Where a follower stands is read only to bound what
    is in flight, and for reports; what it acknowledged, below the commit offset, only for coverage.
    A history is read only as far as the log may reach, and a Fenced replica's log grows no more
    before another history takes its place.
    """
    replica.now_ms = 0
    if replica.led < replica.epoch:
        replica.led = 0  # compared only with the epoch
    if not replica.log.open_tail:
        replica.tail_until = 0
    replica.heard_ms = replica.fetched_ms = replica.told = -1
    replica.leader_rests = False
    replica.fetch_until = 0
    replica.transfer = None
    replica.transferred_bytes = 0
    if not replica.promises and not replica.rewrites:
        replica.token = 0
    lead = replica.lead
    if lead is None and Reduction.COMMITS in reduction:
        forget_commit(replica)
    if replica.role is Role.FENCED and replica.syncing is None and Reduction.HISTORIES in reduction:
        replica.history = clip(replica.history, replica.log.may_end)
    if lead is not None:
        lead.beat_ms = lead.paused_until_ms = lead.rested_ms = lead.told = -1
        lead.resting = False
        lead.fetching.clear()
        if lead.serving:
            lead.sources, lead.tries, lead.kept = (), 0, NOTHING_KEPT
        lead.cursors = dict(sorted(lead.cursors.items()))
        for cursor in lead.cursors.values():
            cursor.sent_ms = NOW_MS
            cursor.heard_ms = HEARD_MS
            if cursor.announced:
                cursor.cut = OPEN_END
            else:
                cursor.at = cursor.durable = cursor.next = 0
            cursor.land_all()
            cursor.sent_beat = lead.beat
            cursor.sent_bytes = cursor.typical_bytes = 0
            cursor.starved = cursor.fed = False
            if not lead.beat:
                cursor.promised = 0  # compared only with acks that echo a heartbeat
    return replica


def forget_commit(replica: Replica) -> None:
    if replica.syncing is None and not replica.log.first:
        replica.commit = 0
        replica.sessions = SessionTable()


# --- whole steps -------------------------------------------------------------------------------


def step(state: Replica, event: Event, reduction: Reduction) -> Taken:
    """One event, and the syncs that it asks for."""
    replica = copied(state)
    sent: list[Envelope] = []
    disk: list[Effect] = []
    for effects in _phases(replica, event, reduction):
        for effect in effects:
            envelope = outgoing(replica, effect)
            if envelope is not None:
                sent.append(envelope)
            elif not isinstance(effect, Sync | ServeRead):
                disk.append(effect)
    return Taken(settled(replica, reduction), tuple(sent), tuple(disk))


def _phases(replica: Replica, event: Event, reduction: Reduction) -> Iterator[list[Effect]]:
    """The effects of the event, then those of each sync in turn.

    A leader that is being fenced forgets its commit offset before it answers, not after.
    """
    message = event.envelope.message if isinstance(event, Received) else None
    fenced = isinstance(message, Fence) and message.epoch > replica.epoch
    if fenced and Reduction.COMMITS in reduction:
        forget_commit(replica)
    waiting: list[Event] = [event]
    while waiting:
        effects = replica.step(NOW_MS, waiting.pop(0))
        waiting += [Synced(effect.token) for effect in effects if isinstance(effect, Sync)]
        yield effects


def outgoing(replica: Replica, effect: Effect) -> Envelope | None:
    """The message that an effect sends, if it does.  Bodies are empty here."""
    if isinstance(effect, Send):
        return effect.envelope
    if not isinstance(effect, SendEntries | SendFetched):
        return None
    entries = tuple(Entry(header, b"") for header in effect.headers)
    message: Message
    if isinstance(effect, SendEntries):
        message = Entries(effect.epoch, entries, effect.commit, effect.first)
    else:
        message = Fetched(effect.epoch, entries, effect.more)
    me, to = replica.member, effect.to
    return Envelope(SHARD, me.node, me.incarnation, to.node, to.incarnation, message)


# --- disks -------------------------------------------------------------------------------------


def performed(image: Image, effects: Sequence[Effect], reduction: Reduction) -> Image:
    """The image after these disk effects, all of them durable."""
    for effect in effects:
        image = _perform(image, effect)
    block = image.superblock
    if block is None:
        return image
    if block.led < block.epoch:
        block = replace(block, led=0)
    if Reduction.COMMITS in reduction and block.syncing is None and not image.first:
        block = replace(block, commit=0, sessions_at=0, sessions=(), session_limits=UNNAMED_LIMITS)
        image = image._replace(ridden_commit=0)
    return image._replace(superblock=block)


def _perform(image: Image, effect: Effect) -> Image:
    if isinstance(effect, WriteEntries):
        headers = (*image.headers, *(entry.header for entry in effect.entries))
        return image._replace(headers=headers, ridden_commit=effect.commit)
    if isinstance(effect, WriteSuperblock):
        return image._replace(superblock=effect.superblock) if image.superblock else image
    if isinstance(effect, TruncateLog):
        kept = tuple(header for header in image.headers if header.base < effect.end)
        return image._replace(headers=kept)
    if isinstance(effect, TrimLog):
        below = [header for header in image.headers if header.base < effect.first]
        boundary = below[-1].checksum if below else image.boundary
        kept = image.headers[len(below) :]
        return image._replace(first=effect.first, boundary=boundary, headers=kept)
    if isinstance(effect, ResetLog):
        return image._replace(
            first=effect.first, boundary=effect.boundary, headers=(), ridden_commit=0
        )
    if isinstance(effect, Format):
        return EMPTY_IMAGE._replace(superblock=effect.superblock)
    return EMPTY_IMAGE if isinstance(effect, Erase) else image


def restarted(node: str, image: Image, reduction: Reduction) -> tuple[Replica, Image]:
    """The replica that comes up from `image`, and the image as its start has mended it."""
    if image.superblock is None:
        return settled(Replica(SHARD, node, LIMITS, seal), reduction), EMPTY_IMAGE
    headers: list[Header] = []
    end, parent = image.first, image.boundary
    for header in sorted(image.headers, key=lambda each: each.base):
        if header.base != end:
            break  # what stood before it did not land: blank, and the log ends here
        if header.parent != parent:
            raise SafetyFailure("DiskOrder", f"{node}: {header.id} does not follow what is on disk")
        headers.append(header)
        end, parent = header.end, header.checksum
    commit = min(max(image.superblock.commit, image.ridden_commit, image.first), end)
    recovered = Recovered(
        replace(image.superblock, commit=commit), image.first, image.boundary, tuple(headers), ()
    )
    mended = image._replace(
        superblock=recovered.superblock, headers=tuple(headers), ridden_commit=0
    )
    return settled(Replica.restart(SHARD, node, LIMITS, seal, recovered), reduction), mended


# --- crashes within a step ---------------------------------------------------------------------


def crashes(state: Replica, image: Image, event: Event, reduction: Reduction) -> list[Crashed]:
    """Every way in which the replica can crash during this step, or right after it.

    Of two crashes that leave the same disk the one that had sent more stands for both, because
    whatever was sent may also never arrive.
    """
    before, replica = state, copied(state)
    floor = min(before.durable_end, before.log.end)
    found: dict[Image, Crashed] = {}
    sent: list[Envelope] = []
    for effects in _phases(replica, event, reduction):
        unsynced: list[Effect] = []
        witness = settled(copied(replica), reduction)
        for effect in (*effects, None):
            for left in _outcomes(image, unsynced, reduction):
                known = found.get(left)
                if known is None or len(sent) >= len(known.sent):
                    after, mended = restarted(before.node, left, reduction)
                    found[left] = Crashed(witness, after, mended, tuple(sent))
            if effect is None:
                break
            envelope = outgoing(replica, effect)
            if envelope is not None:
                sent.append(envelope)
            elif not isinstance(effect, Sync | ServeRead):
                unsynced.append(effect)
                if isinstance(effect, TruncateLog | ResetLog | Erase | Format):
                    floor = min(floor, effect.end if isinstance(effect, TruncateLog) else 0)
        image = performed(image, unsynced, reduction)
    for crash in found.values():
        if before.role is not Role.NOT_MEMBER:
            _check_promises(before.member, before.epoch, floor, crash)
    return list(found.values())


def _outcomes(image: Image, effects: Sequence[Effect], reduction: Reduction) -> Iterator[Image]:
    """What a crash may leave of unsynced effects.

    Nothing behind a barrier lands before all that stands in front of it; within a stretch without
    barriers each effect lands, or not, by itself.
    """
    stretch: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Barrier):
            yield from _landed(image, stretch, reduction)
            image = performed(image, stretch, reduction)
            stretch = []
        else:
            stretch.append(effect)
    yield from _landed(image, stretch, reduction)


def _landed(image: Image, stretch: Sequence[Effect], reduction: Reduction) -> Iterator[Image]:
    for kept in product((False, True), repeat=len(stretch)):
        chosen = [effect for effect, keep in zip(stretch, kept, strict=True) if keep]
        yield performed(image, chosen, reduction)


def _check_promises(member: Member, epoch: int, floor: int, crash: Crashed) -> None:
    """Promises survive: what was durable before, and what this step had sent, is still there."""
    after = crash.after
    if after.incarnation != member.incarnation:
        return
    ends = [floor]
    for envelope in crash.sent:
        message = envelope.message
        if isinstance(message, Ack):
            ends.append(message.end)
        if isinstance(message, Ack | FenceAnswer | BecameLeader):
            epoch = max(epoch, message.epoch)
    if after.epoch < epoch:
        raise SafetyFailure("PromisesSurvive", f"{member} forgot epoch {epoch} in a restart")
    if after.log.end < max(ends):
        raise SafetyFailure("PromisesSurvive", f"{member} forgot offset {max(ends)} in a restart")
