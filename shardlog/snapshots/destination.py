"""Where snapshots are kept: objects below a URL, through obstore.

Every failure of the library becomes one of ours here, and nowhere else.  A put is whole or not
there at all.  On a file system it is also durable when it returns, which the library's are not:
`local_files` puts there, since a manifest must never outlive the segments that it names.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from shardlog.checksum import Buffer
from shardlog.snapshots.failures import (
    BadDestination,
    DestinationRefused,
    DestinationUnavailable,
    ObjectExists,
    ObjectMissing,
    SnapshotFailure,
)
from shardlog.snapshots.local_files import LocalFile, LocalFiles

RETRIES_MAX = 5
RETRY_TIMEOUT_S = 30
PART_BYTES = 8 << 20
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d+)")
_NOT_PARTIAL = "non-partial response"
_BEYOND_THE_END = ("Requested range was invalid", "status 416")
_REFUSED_STATUS = {"400", "401", "403", "404"}
_IN_THE_WAY = (NotADirectoryError, IsADirectoryError, PermissionError, FileExistsError)


@dataclass(frozen=True, slots=True)
class Found:
    """An object in a listing; `modified` is by the clock of whoever keeps it."""

    name: str
    size: int
    modified: datetime


class Destination:
    """Objects below `url`; their names are parts with slashes between them."""

    def __init__(self, url: str, *, make: bool = False) -> None:
        self.url = url.rstrip("/")
        self._directory = _local_directory(url)
        if self._directory is not None and make:
            with self._translated(""):
                self._directory.mkdir(parents=True, exist_ok=True)
        self._files = None if self._directory is None else LocalFiles(self._directory)
        self._store = self._opened()
        self._whole_only = False
        self._kept = ("", b"")

    def _opened(self) -> Any:
        try:
            import obstore.store
        except ImportError as failure:
            missing = "snapshots need: pip install 'shardlog[snapshot]'"
            raise BadDestination(missing) from failure
        if "://" not in self.url:
            raise BadDestination(f"{self.url!r} is no URL: file:///DIRECTORY, s3://BUCKET/PREFIX")
        if self._directory is not None:
            if not self._directory.is_dir():
                raise DestinationRefused(f"{self.url}: there is no such directory")
            with self._translated(""):
                return obstore.store.LocalStore(self._directory)
        try:
            return obstore.store.from_url(
                self.url,
                retry_config={
                    "max_retries": RETRIES_MAX,
                    "retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S),
                },
            )
        except (obstore.exceptions.BaseError, ValueError, TypeError) as failure:
            raise BadDestination(f"{self.url}: {_first_line(failure)}") from failure

    # --- objects ---------------------------------------------------------------------------------

    def put(self, name: str, data: Buffer, *, new: bool = False) -> None:
        """`new`: `ObjectExists` if there is one, where the store can tell."""
        import obstore

        with self._translated(name):
            if self._files is None:
                obstore.put(self._store, name, data, mode="create" if new else None,
                            chunk_size=PART_BYTES)  # fmt: skip
                return
            try:
                self._files.put(name, data, new=new)
            except FileExistsError as failure:
                if new:
                    raise ObjectExists(f"{self.url}/{name} exists") from failure
                raise

    def begin(self, name: str) -> Begun | None:
        """An object that is written while it grows; None where it has to be put as a whole.

        It stands beside `name`, and is given its own name when it is finished.
        """
        if self._files is None:
            return None
        with self._translated(name):
            return Begun(self._files.begin(name), partial(self._translated, name))

    def get(self, name: str) -> bytes:
        import obstore

        with self._translated(name):
            return bytes(obstore.get(self._store, name).bytes())

    def get_range(self, name: str, start: int, end: int) -> memoryview:
        """What there is of it: fewer bytes if the object is shorter.

        Some endpoints answer a range with the status of a whole object, which the library does not
        take.  There the object is read whole, and kept for the next range of it.
        """
        import obstore

        if not self._whole_only:
            try:
                with self._translated(name):
                    found = obstore.get_range(self._store, name, start=start, end=end)
                return memoryview(found)
            except DestinationUnavailable as failure:
                if any(each in str(failure) for each in _BEYOND_THE_END):
                    return memoryview(b"")
                if _NOT_PARTIAL not in str(failure):
                    raise
                self._whole_only = True
        kept, data = self._kept
        if kept != name:
            data = self.get(name)
            self._kept = (name, data)
        return memoryview(data)[start:end]

    def size(self, name: str) -> int:
        import obstore

        with self._translated(name):
            return int(obstore.head(self._store, name)["size"])

    def list(self, prefix: str) -> list[Found]:
        import obstore

        with self._translated(prefix):
            batches = obstore.list(self._store, prefix)
            return sorted(
                (
                    Found(each["path"], each["size"], each["last_modified"])
                    for batch in batches
                    for each in batch
                ),
                key=lambda found: found.name,
            )

    def delete(self, name: str) -> None:
        """None is an error if it is gone already."""
        import obstore

        try:
            with self._translated(name):
                obstore.delete(self._store, name)
        except ObjectMissing:
            return

    # --- failures --------------------------------------------------------------------------------

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        from obstore import exceptions

        where = f"{self.url}/{name}" if name else self.url
        try:
            yield
        except exceptions.AlreadyExistsError as failure:
            raise ObjectExists(f"{where} exists") from failure
        except FileNotFoundError as failure:
            raise self._missing(where, failure) from failure
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as failure:
            raise DestinationRefused(f"{where}: {_reason(failure)}") from failure
        except _IN_THE_WAY as failure:
            raise DestinationRefused(f"{where}: {failure.strerror or failure}") from failure
        except (exceptions.BaseError, OSError, ValueError) as failure:
            kind: type[SnapshotFailure] = DestinationUnavailable
            status = _STATUS.search(str(failure))
            if status is not None and status[1] in _REFUSED_STATUS:
                kind = DestinationRefused
            raise kind(f"{where}: {_reason(failure)}") from failure

    def _missing(self, where: str, failure: Exception) -> SnapshotFailure:
        code = _CODE.search(str(failure))
        if code is not None and code[1] != "NoSuchKey":
            return DestinationRefused(f"{where}: {_reason(failure)}")
        return ObjectMissing(f"{where} is missing")


class Begun:
    """A file that is not there yet; see `LocalFile`."""

    def __init__(
        self, file: LocalFile, translated: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._translated = translated

    def write(self, data: memoryview, at: int) -> None:
        """May be called by several threads; fastest for whole pages."""
        with self._translated():
            pages = len(data) & -mmap.PAGESIZE
            if pages:
                self._file.write_pages(data[:pages], at)
            if pages < len(data):
                self._file.write(data[pages:], at + pages)

    def finish(self, name: str) -> None:
        with self._translated():
            self._file.finish(name)

    def abandon(self) -> None:
        with self._translated():
            self._file.abandon()


def _local_directory(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise BadDestination(f"{url}: a directory is named as file:///DIRECTORY")
    path = unquote(parts.path)
    if ".." in path.split("/") or "\0" in path:
        raise BadDestination(f"{url}: a directory is named without '..'")
    return Path(path)


def _reason(failure: Exception) -> str:
    """What a person can do something about, out of what the library says."""
    said = str(failure)
    code, status = _CODE.search(said), _STATUS.search(said)
    if code is not None:
        return f"{code[1]} (status {status[1]})" if status else code[1]
    if status is not None:
        return f"status {status[1]}"
    return _first_line(failure)


def _first_line(failure: Exception) -> str:
    lines = str(failure).splitlines()
    return lines[0].strip() if lines else type(failure).__name__
