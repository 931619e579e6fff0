"""What an export has published, beside it: `_shardlog/NUMBER.json`, one for each run.

A run writes its files into `_shardlog/staging`, then its entry in the book, with all files that it
will publish and where each shard ends, and then gives the files their names.  The entry decides: a
run that was killed before it has done nothing, and the next run takes its staging away; one that
was killed after it is finished by the next run, file by file, before that does anything else.  Only
one run may be at work at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from shardlog_spark.failures import CannotWrite
from shardlog_spark.job import java_line, require_writable

BOOK, STAGING, REJECTS = "_shardlog", "_shardlog/staging", "_rejects"


@dataclass
class Run:
    """An entry.  `ends` are offsets as streams have them, `files` are below the directory.

    `rows`, `rejects` and `late` are counts by shard, `until_ms` is when it was begun.
    """

    number: int
    until_ms: int
    starts: dict[str, int]
    ends: dict[str, dict[str, Any]]
    rows: dict[str, int] = field(default_factory=dict)
    rejects: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    schema: str | None = None


class Book:
    """Of the export to `out`, by whatever file system Spark knows for it."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self.out = out.rstrip("/")
        jvm = spark._jvm
        assert jvm is not None, "jobs run where the driver is"
        self._jvm = jvm
        self._files, _ = require_writable(spark, out)

    @property
    def staging(self) -> str:
        return f"{self.out}/{STAGING}"

    def runs(self) -> list[Run]:
        """All, the first one first; `CannotWrite` if there is a directory that is no export."""
        if not self._is_there(""):
            return []
        if not self._is_there(BOOK):
            raise CannotWrite(f"{self.out} exists, and is no export")
        names = [name for name in self.listed(BOOK) if name.endswith(".json")]
        return [Run(**json.loads(self._read(f"{BOOK}/{name}"))) for name in sorted(names)]

    def recover(self, runs: list[Run]) -> None:
        """Finish the last run, and take away what is of none."""
        if runs:
            self._apply(runs[-1])
        self._delete(STAGING)

    def publish(self, run: Run, staged: list[str]) -> None:
        """`staged` are files below the staging directory; each gets its name with the run's."""
        run.files = [self._named(run.number, name) for name in staged]
        for old, new in zip(staged, run.files, strict=True):
            self._rename(f"{STAGING}/{old}", f"{STAGING}/{new}")
        self._write(f"{BOOK}/{run.number:08d}.json", json.dumps(asdict(run)))
        self._apply(run)
        self._delete(STAGING)

    def _apply(self, run: Run) -> None:
        for name in run.files:
            if self._is_there(f"{STAGING}/{name}"):
                self._rename(f"{STAGING}/{name}", name)
        for name in run.removed:
            self._delete(name)
        self._write("_SUCCESS", "")

    @staticmethod
    def _named(number: int, staged: str) -> str:
        """Where a staged file belongs: rejects are hidden from those who read the directory."""
        staged = staged.removeprefix("table=records/").replace("table=rejects/", f"{REJECTS}/")
        directory, slash, name = staged.rpartition("/")
        return f"{directory}{slash}run-{number:08d}-{name}"

    # --- files -----------------------------------------------------------------------------------

    def listed(self, directory: str) -> list[str]:
        """Names in it."""
        if not self._is_there(directory):
            return []
        found = self._failing(lambda: self._files.listStatus(self._path(directory)))
        return [each.getPath().getName() for each in found]

    def found(self, directory: str, suffix: str) -> list[str]:
        """Files below a directory, by their names there."""
        if not self._is_there(directory):
            return []
        top = self._failing(lambda: self._files.getFileStatus(self._path(directory)))
        start = len(top.getPath().toString()) + 1
        rest = self._failing(lambda: self._files.listFiles(self._path(directory), True))
        names = []
        while rest.hasNext():
            names.append(rest.next().getPath().toString()[start:])
        return sorted(name for name in names if name.endswith(suffix))

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.out}/{name}" if name else self.out)

    def _is_there(self, name: str) -> bool:
        return bool(self._failing(lambda: self._files.exists(self._path(name))))

    def _read(self, name: str) -> str:
        stream = self._failing(lambda: self._files.open(self._path(name)))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def _write(self, name: str, content: str) -> None:
        """All of it or nothing: under another name first."""
        other = f"{BOOK}/{name.rpartition('/')[2]}.tmp"
        stream = self._failing(lambda: self._files.create(self._path(other), True))
        stream.write(bytearray(content.encode()))
        stream.close()
        if self._is_there(name):
            self._delete(name)
        self._rename(other, name)

    def _rename(self, old: str, new: str) -> None:
        self._failing(lambda: self._files.mkdirs(self._path(new).getParent()))
        if not self._failing(lambda: self._files.rename(self._path(old), self._path(new))):
            raise CannotWrite(f"{self.out}/{old} cannot become {new}")

    def _delete(self, name: str) -> None:
        """With all that is in it, if it is there."""
        self._failing(lambda: self._files.delete(self._path(name), True))

    def _failing(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Py4JJavaError as failure:
            raise CannotWrite(f"{self.out}: {java_line(failure)}") from failure
