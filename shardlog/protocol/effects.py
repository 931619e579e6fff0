"""Events and effects: the seam between a replica and its driver.

A driver performs effects strictly in their order.  Disk effects go into one queue; `Barrier`
makes everything before it durable before anything behind it starts, and `Sync` reports back as
`Synced` once everything before it is durable.  A replica never answers on faith: what a sync must
precede is sent only in the step that receives `Synced`.
"""

from __future__ import annotations

from shardlog.protocol.entry import Entry, Header, Member
from shardlog.protocol.history import History
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import Envelope, Membership, Snapshot
from shardlog.protocol.sessions import UNNAMED_LIMITS, SessionLimits, Sessions
from shardlog.protocol.value import value

# --- events ------------------------------------------------------------------------------------


@value
class Received:
    """A message came in.  `draw` is a fresh random number, used only if it formats a replica."""

    envelope: Envelope
    draw: int = 0


@value
class Tick:
    """Time has passed."""


@value
class Synced:
    """Everything written before `Sync(token)` is durable."""

    token: int


@value
class ReadFailed:
    """The driver found the entry at `base` damaged when it read it."""

    base: int


@value
class Distrusted:
    """What came from `source` was not as it was made: damaged on its way, or at its source."""

    source: Member


@value
class Disconnected:
    """The connection over which a node spoke to us broke."""

    node: str


@value
class Outgrown:
    """By the shard's upkeep nothing below `first` has to be kept; the driver knows its files."""

    first: int


Event = Received | Tick | Synced | ReadFailed | Distrusted | Disconnected | Outgrown


# --- disk effects ------------------------------------------------------------------------------


@value
class Superblock:
    """What is kept in several checksummed copies: every promise but the log itself.

    `sessions` is the table folded up to `sessions_at`.  `syncing` is the snapshot being installed.
    `in_doubt` counts entries that may have stood where the log was since started over.
    `election` is the id of the election that `epoch` was promised to; 0 if it had none.
    """

    incarnation: int
    epoch: int
    led: int
    history: History
    commit: int
    sessions_at: int
    sessions: Sessions
    syncing: Snapshot | None
    in_doubt: int = 0
    election: int = 0
    membership: Membership | None = None
    session_limits: SessionLimits = UNNAMED_LIMITS


@value
class Format:
    """Make an empty replica."""

    superblock: Superblock


@value
class Erase:
    """Destroy the replica."""


@value
class WriteSuperblock:
    superblock: Superblock


@value
class WriteEntries:
    """Append, with the commit offset riding along (rule 17)."""

    entries: tuple[Entry, ...]
    commit: int


@value
class RewriteEntry:
    """Repair in place."""

    entry: Entry


@value
class TruncateLog:
    end: int


@value
class TrimLog:
    """Drop what lies below `first`; `boundary` is the checksum of the entry that ended there."""

    first: int
    boundary: int


@value
class ResetLog:
    """Drop the whole log and start an empty one at `first`, behind `boundary`."""

    first: int
    boundary: int


@value
class Barrier:
    """Make durable all before it, before any behind it."""


@value
class Sync:
    token: int


# --- network effects ---------------------------------------------------------------------------


@value
class Send:
    envelope: Envelope


@value
class SendEntries:
    """Read these entries and send them as `Entries`; report `ReadFailed` for a damaged one."""

    to: Member
    epoch: int
    headers: tuple[Header, ...]
    commit: int
    first: int


@value
class SendFetched:
    """The same, as `Fetched`: a piece of the answer to a `Fetch`, with `more` records to come."""

    to: Member
    epoch: int
    headers: tuple[Header, ...]
    more: int = 0


@value
class ServeRead:
    """Read these entries and answer a client's `Read`."""

    client: str
    nonce: int
    headers: tuple[Header, ...]
    commit: int


Disk = (
    Format
    | Erase
    | WriteSuperblock
    | WriteEntries
    | RewriteEntry
    | TruncateLog
    | TrimLog
    | ResetLog
    | Barrier
    | Sync
)
Effect = Disk | Send | SendEntries | SendFetched | ServeRead


@value
class Recovered:
    """What a driver found on disk at start.

    `headers` are the latest; older ones are in the archive.  If the last is an unreadable stretch
    of unknown length, `tail_slots` tells how many entries it may have held.
    """

    superblock: Superblock
    first: int
    boundary: int
    headers: tuple[Header, ...]
    marks: tuple[tuple[int, Mark], ...]
    tail_slots: int = 1


@value
class Limits:
    """Every bound of a replica, with its unit in the name.

    A leader beats every `heartbeat_ms`; while nothing happens, every `rest_ms`.  `sessions_max` and
    `replies_max` are for shards that begin under this leader: the log of any other names its own.
    A session that was used within `session_idle_ms` is not evicted: a registration is refused then.
    """

    heartbeat_ms: int = 50
    rest_ms: int = 200
    quorum_silence_ms: int = 300
    resend_ms: int = 150
    resend_entries_ms: int = 150
    pause_ms: int = 500
    repair_retry_ms: int = 100
    repair_tries_max: int = 10
    headers_kept: int = 64
    checkpoint_entries: int = 4096
    settle_bytes: int = 1 << 20
    batch_entries_max: int = 16
    batch_bytes_max: int = 1 << 20
    inflight_entries_max: int = 256
    inflight_bytes_max: int = 8 << 20
    unsynced_entries_max: int = 1024
    unsynced_bytes_max: int = 32 << 20
    fetch_retry_ms: int = 100
    fetch_entries_max: int = 64
    fetch_bytes_max: int = 1 << 20
    fetch_pieces_max: int = 4
    appends_inflight_max: int = 256
    standby_lag_entries_max: int = 8
    sessions_max: int = 64
    replies_max: int = 8
    session_idle_ms: int = 0

    @property
    def slack_ms(self) -> int:
        """By how much longer one waits for whoever rests."""
        return max(0, self.rest_ms - self.heartbeat_ms)
