"""Options of the source, checked before anything else is done.

Names and meanings follow Spark's source for Kafka where there is such a thing.  A name that is not
known is an error: a misspelt one would otherwise silently read something else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from shardlog.snapshots.arrow_columns import COLUMNS, TYPES
from shardlog_spark.failures import BadOption

EARLIEST, LATEST = -2, -1
"""As in the JSON of Kafka's options."""

_BOOTSTRAP = "shardlog.bootstrap.servers"
KNOWN = {
    _BOOTSTRAP, "subscribe", "subscribepattern", "startingoffsets", "endingoffsets",
    "startingtimestamp", "endingtimestamp", "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp", "includeheaders",
    "failondataloss", "maxoffsetspertrigger", "minpartitions", "columns", "snapshot", "path",
    "filterpushdown", "timeoutms", "compression", "shard", "delivery", "journal", "txnappid",
    "txnversion", "failonbadtimestamp",
    "tlsauthority", "tlscertificate", "tlskey", "tlsname",
}  # fmt: skip
_TABLE_OPTION = "option."
"""Spark gives the options of a table twice, once with this before their names."""
_OF_SPARK = {
    "checkpointlocation", "queryname",
    "collation", "comment", "external", "is_managed_location", "location", "owner", "provider",
    "serialization.format", "table_type", "view_text",
}  # fmt: skip
"""Options of streams and properties of tables that Spark keeps for itself, and passes on."""
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"

Offsets = int | dict[str, int]
"""One place for all shards, or one for each."""
Times = int | dict[str, int]
"""Likewise, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths on every machine; no authority means connections without TLS.

    `name` is whom the nodes' certificates must name, if not their hosts.
    """

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """`path` is where snapshots are, `url` where a cluster is: one of them."""

    path: str | None
    url: str | None
    shards: tuple[str, ...]
    pattern: re.Pattern[str] | None
    """Shards whose whole names match it, instead of `shards`."""
    snapshot: str | None
    starting: Offsets | None
    ending: Offsets | None
    starting_ms: Times | None
    ending_ms: Times | None
    fail_on_data_loss: bool
    fail_on_bad_timestamp: bool
    offsets_per_trigger: int | None
    partitions_min: int | None
    columns: tuple[str, ...]
    filter_pushdown: bool
    timeout_ms: int
    compression: str
    delivery: str
    journal: str | None
    write_name: str | None
    tls: TlsFiles

    @property
    def is_live(self) -> bool:
        return self.url is not None

    def from_earliest(self) -> Options:
        """For a stream without an end, from the beginning if nothing else is said."""
        starting = EARLIEST if self.starting is None else self.starting
        return replace(self, starting=starting, ending=None, ending_ms=None)

    def matching(self, names: Iterable[str]) -> tuple[str, ...]:
        """The shards to read, of those that are there if a pattern chooses them."""
        if self.pattern is None:
            return self.shards
        return tuple(name for name in names if self.pattern.fullmatch(name))

    def times(self, shard: str) -> tuple[int | None, int | None]:
        """Only batches that were appended at the first or later, and before the second."""
        start, end = (
            each.get(shard) if isinstance(each, dict) else each
            for each in (self.starting_ms, self.ending_ms)
        )
        return start, end


def read_options(given: Mapping[str, str]) -> Options:
    lowered = {name.lower(): value for name, value in given.items()}
    known = {
        name: value
        for name, value in lowered.items()
        if name not in _OF_SPARK and not name.startswith(_TABLE_OPTION)
    }
    for name in known:
        if name not in KNOWN:
            raise BadOption(f"option {name!r} is not known to shardlog")
    path, url = known.get("path"), known.get(_BOOTSTRAP)
    if (path is None) == (url is None):
        raise BadOption(f"either load(URL of snapshots) or option {_BOOTSTRAP!r} must be given")
    shards, pattern = _subscribed(known)
    if known.get("snapshot") is not None and (path is None or len(shards) != 1):
        raise BadOption("option 'snapshot' is for one shard and load(URL of snapshots)")
    return Options(
        _snapshots_url(path), None if url is None else _client_url(url), shards, pattern,
        known.get("snapshot"),
        _offsets(known, "startingOffsets", shards), _offsets(known, "endingOffsets", shards),
        _times(known, "starting", shards), _times(known, "ending", shards),
        _flag(known, "failOnDataLoss", True),
        _flag(known, "failOnBadTimestamp", False),
        _number(known, "maxOffsetsPerTrigger", least=1), _number(known, "minPartitions", least=1),
        _columns(known), _flag(known, "filterPushdown", False),
        _number(known, "timeoutMs", least=1) or 30_000, known.get("compression", "none").lower(),
        _delivery(known), _journal(known, shards), _write_name(known), _tls(known),
    )  # fmt: skip


def _subscribed(known: Mapping[str, str]) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    given = known.get("subscribepattern")
    named = known.get("subscribe") or known.get("shard") or ""
    shards = tuple(each.strip() for each in named.split(",") if each.strip())
    if given is not None and shards:
        raise BadOption("options 'subscribe' and 'subscribePattern' exclude each other")
    if given is not None:
        try:
            return (), re.compile(given)
        except re.error as failure:
            raise BadOption(f"option 'subscribePattern' is {given!r}: {failure}") from failure
    if not shards:
        raise BadOption("option 'subscribe' must name the shard, or several with commas between")
    if len(set(shards)) != len(shards):
        raise BadOption("option 'subscribe' names a shard twice")
    return shards, None


def _times(known: Mapping[str, str], which: str, shards: tuple[str, ...]) -> Times | None:
    """`startingTimestamp` of all shards, or `startingOffsetsByTimestamp` of each."""
    one, each = f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    given = known.get(each.lower())
    if given is None:
        return _number(known, one)
    if known.get(one.lower()) is not None:
        raise BadOption(f"options {one!r} and {each!r} exclude each other")
    return _by_shard(each, given, shards, 0, '{"SHARD": MILLISECONDS}')


def _delivery(known: Mapping[str, str]) -> str:
    found = known.get("delivery", EXACTLY_ONCE).lower()
    if found not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise BadOption(f"option 'delivery' is {found!r}: {EXACTLY_ONCE} or {AT_LEAST_ONCE}")
    return found


def _journal(known: Mapping[str, str], shards: tuple[str, ...]) -> str | None:
    found = known.get("journal")
    if found is not None and (not found or found in shards):
        raise BadOption(f"option 'journal' is {found!r}: a shard for nothing but claims")
    return found


def _write_name(known: Mapping[str, str]) -> str | None:
    """Whoever writes under the same name again writes the same."""
    name, version = known.get("txnappid"), known.get("txnversion")
    if (name is None) != (version is None):
        raise BadOption("options 'txnAppId' and 'txnVersion' go together")
    if name is not None and known.get("journal") is None:
        raise BadOption("option 'txnAppId' needs option 'journal': a shard for claims")
    return None if name is None else f"{name}/{version}"


def _tls(known: Mapping[str, str]) -> TlsFiles:
    """What is not given is taken from the environment, as commands do."""
    found = TlsFiles(
        *(
            known.get(f"tls{name}") or os.environ.get(f"SHARDLOG_TLS_{name.upper()}") or None
            for name in ("authority", "certificate", "key", "name")
        )
    )
    if (found.certificate is None) != (found.key is None):
        raise BadOption("options 'tlsCertificate' and 'tlsKey' go together")
    if found.authority is None and (found.certificate is not None or found.name is not None):
        raise BadOption("option 'tlsAuthority' is needed with the other options of TLS")
    return found


def _client_url(given: str) -> str:
    return given if "://" in given else f"shardlog://{given}"


def _snapshots_url(path: str | None) -> str | None:
    """Hadoop leaves out the empty host of a file's URL."""
    if path is None or not path.startswith("file:/") or path.startswith("file://"):
        return path
    return "file://" + path.removeprefix("file:")


def _columns(known: Mapping[str, str]) -> tuple[str, ...]:
    has_headers, given = _flag(known, "includeHeaders", True), known.get("columns")
    if given is None:
        return tuple(each for each in COLUMNS if has_headers or each != "headers")
    if "includeheaders" in known:
        raise BadOption("options 'includeHeaders' and 'columns' exclude each other")
    found = tuple(each.strip() for each in given.split(",") if each.strip())
    unknown = [each for each in found if each not in TYPES]
    if unknown or not found or len(set(found)) != len(found):
        raise BadOption(f"option 'columns' is {given!r}: some of {', '.join(TYPES)}, each once")
    return found


def _number(known: Mapping[str, str], name: str, least: int = 0) -> int | None:
    given = known.get(name.lower())
    if given is None:
        return None
    try:
        found = int(given)
    except ValueError:
        found = -1
    if found < least:
        raise BadOption(f"option {name!r} is {given!r}: a number from {least} on")
    return found


def _flag(known: Mapping[str, str], name: str, default: bool) -> bool:
    given = known.get(name.lower())
    if given is None:
        return default
    if given.lower() not in ("true", "false"):
        raise BadOption(f"option {name!r} is {given!r}: true or false")
    return given.lower() == "true"


def _offsets(known: Mapping[str, str], name: str, shards: tuple[str, ...]) -> Offsets | None:
    given = known.get(name.lower())
    if given is None:
        return None
    words = {"earliest": EARLIEST, "latest": LATEST}
    if given.lower() in words:
        return words[given.lower()]
    return _by_shard(name, given, shards, EARLIEST, 'earliest, latest or {"SHARD": OFFSET}')


def _by_shard(
    name: str, given: str, shards: tuple[str, ...], least: int, wanted: str
) -> dict[str, int]:
    """A number for each shard; with a pattern nobody knows yet which there are."""
    try:
        found = json.loads(given)
        bad = not isinstance(found, dict) or not all(
            isinstance(each, int) and not isinstance(each, bool) and each >= least
            for each in found.values()
        )
    except ValueError:
        bad = True
    if bad:
        raise BadOption(f"option {name!r} is {given!r}: {wanted}")
    for shard in shards:
        if shard not in found:
            raise BadOption(f"option {name!r} says nothing of the shard {shard!r}")
    for shard in found:
        if shards and shard not in shards:
            raise BadOption(f"option {name!r} names {shard!r}, which is not subscribed to")
    return {shard: int(offset) for shard, offset in found.items()}


def place(offsets: Offsets | None, shard: str, default: int) -> int:
    """The offset that is meant, or EARLIEST or LATEST."""
    if offsets is None:
        return default
    return offsets if isinstance(offsets, int) else offsets.get(shard, default)


def require_order(shard: str, start: int, end: int) -> None:
    """A range that ends before it begins is a mistake; an empty one may be meant."""
    if start > end:
        raise BadOption(
            f"options startingOffsets and endingOffsets: {shard!r} would be read from offset "
            f"{start} to {end}, which is before it"
        )
