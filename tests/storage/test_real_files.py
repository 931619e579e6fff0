"""What only the real side of the filesystem seam has: short calls, and errors of a real kernel.

Volumes that are full or read-only are mounted in a mount namespace of a process of their own, so
nothing is left behind whatever becomes of the test.
"""

import errno
import os
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardlog.storage.failures import (
    DiskFailed,
    DiskFull,
    MissingFile,
    NotPermitted,
    ReadOnlyVolume,
    StorageFailure,
    TooManyOpenFiles,
)
from shardlog.storage.files import Buffer
from shardlog.storage.real_files import RealFiles, translated
from storage.processes import run, run_mounted


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EMFILE, TooManyOpenFiles),
        (errno.ENFILE, TooManyOpenFiles),
        (errno.EROFS, ReadOnlyVolume),
        (errno.ENOENT, MissingFile),
        (errno.EACCES, NotPermitted),
        (errno.EPERM, NotPermitted),
        (errno.EIO, DiskFailed),
        (errno.ENOTDIR, DiskFailed),
    ],
)
def test_the_error_number_decides_the_type(code: int, kind: type[StorageFailure]):
    failure = translated(OSError(code, os.strerror(code)), "/data/a", "write")
    assert type(failure) is kind
    assert failure.path == "/data/a"


def test_a_failure_names_the_operation_and_the_reason():
    failure = translated(OSError(errno.EIO, os.strerror(errno.EIO)), "/data/a", "sync")
    assert str(failure) == "/data/a: sync: Input/output error"


def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = os.pwritev

    def short(fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return whole(fd, [b"".join(buffers)[:7]], position)

    monkeypatch.setattr(os, "pwritev", short)
    buffers = [b"", b"a" * 5, b"b" * 20, b"", b"c", b"d" * 7, b""]
    file = RealFiles().create(str(tmp_path / "a"))
    file.write(3, buffers)
    assert file.read(3, 100) == b"".join(buffers)


def test_a_kernel_that_writes_nothing_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: 0)
    with pytest.raises(DiskFailed, match="wrote nothing"):
        RealFiles().create(str(tmp_path / "a")).write(0, [b"abc"])


def test_short_reads_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = os.pread
    file = RealFiles().create(str(tmp_path / "a"))
    file.write(0, [b"0123456789"])
    monkeypatch.setattr(
        os, "pread", lambda fd, length, position: whole(fd, min(length, 3), position)
    )
    assert file.read(0, 10) == b"0123456789"
    assert file.read(1, 100) == b"123456789"


def test_who_reads_alone_does_not_slow_down_those_who_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    advised: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *given: advised.append(given[-1]))
    file = RealFiles().create(str(tmp_path / "a"))
    file.write(0, [b"0123456789"])
    assert file.read_alone(2, 3) == b"234"
    assert advised == [os.POSIX_FADV_RANDOM, os.POSIX_FADV_NORMAL]
    advised.clear()
    file.close()
    with pytest.raises(DiskFailed):
        file.read_alone(2, 3)
    assert advised[-1] == os.POSIX_FADV_NORMAL


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_what_is_not_in_memory_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
):
    file = RealFiles().create(str(tmp_path / "a"))
    file.write(0, [b"x" * 10_000])
    file.sync()

    def preadv(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", preadv)
    assert file.read_cached(0, 10_000) is None
    assert file.read(0, 10_000) == b"x" * 10_000


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_allocates_where_blocks_cannot_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
):
    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = RealFiles().create(str(tmp_path / "a"))
    file.write(0, [b"abc"])
    file.allocate(3 << 20)
    assert file.read(0, 4 << 20) == b"abc" + bytes((3 << 20) - 3)


def test_allocated_blocks_are_there(tmp_path: Path):
    file = RealFiles().create(str(tmp_path / "a"))
    file.allocate(1 << 20)
    assert os.fstat(file.fileno()).st_blocks * 512 >= 1 << 20


def test_descriptors_are_not_inherited(tmp_path: Path):
    file = RealFiles().create(str(tmp_path / "a"))
    assert not os.get_inheritable(file.fileno())


def test_a_whole_volume(tmp_path: Path):
    volume = RealFiles().open_volume(str(tmp_path))
    assert volume is not None
    volume.sync()
    volume.sync()
    volume.close()
    volume.close()
    with pytest.raises(DiskFailed, match="sync: Bad file descriptor"):
        volume.sync()
    with pytest.raises(MissingFile):
        RealFiles().open_volume(str(tmp_path / "no"))


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_failed_sync_is_never_one_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
):
    """The kernel takes what it could not write for written: a second sync would succeed."""

    def refuse(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    file = RealFiles().create(str(tmp_path / "a"))
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(DiskFailed):
        file.sync() if call == "fdatasync" else RealFiles().sync_directory(str(tmp_path))
    file.close()


def test_a_kernel_that_hides_failed_write_backs_is_not_asked_for_whole_volumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shardlog.storage.real_files.SYNCFS_TELLS", False)
    assert RealFiles().open_volume(str(tmp_path)) is None


def test_a_full_device():
    file = RealFiles().open("/dev/full")
    with pytest.raises(DiskFull):
        file.write(0, [b"abc"])
    file.close()


# --- in a process of their own --------------------------------------------------------------------

TOO_MANY = """
import sys, resource
from shardlog.storage.failures import TooManyOpenFiles
from shardlog.storage.real_files import RealFiles
files, path = RealFiles(), sys.argv[1]
files.create(path).close()
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
held = []
for act in (files.open, files.create, files.sync_directory, files.list):
    try:
        while len(held) < 100:
            held.append(act(path if act in (files.open, files.create) else sys.argv[2]))
    except TooManyOpenFiles as failure:
        print(act.__name__, failure.why)
"""

FULL = """
import errno, os, sys
from shardlog.storage.failures import DiskFull
from shardlog.storage.real_files import RealFiles
files, base = RealFiles(), sys.argv[1]
file = files.create(base + "/a")
file.allocate(300_000)
def cannot_reserve(fd, offset, length):
    raise OSError(errno.EOPNOTSUPP, "not here")
can_reserve = os.posix_fallocate
for os.posix_fallocate in (cannot_reserve, can_reserve):
    try:
        file.allocate(2 << 20)
    except DiskFull:
        print("allocate", file.size())
other = files.create(base + "/b")
try:
    other.write(0, [bytes(2 << 20)])
except DiskFull:
    print("write")
other.close()
files.remove(base + "/b")
file.allocate(600_000)
print(file.size())
"""

READ_ONLY = """
import subprocess, sys
from shardlog.storage.failures import ReadOnlyVolume
from shardlog.storage.real_files import RealFiles
files, base = RealFiles(), sys.argv[1]
files.create(base + "/a").close()
subprocess.run(["mount", "-o", "remount,ro", base], check=True)
for act in (
    lambda: files.open(base + "/a"),
    lambda: files.create(base + "/a"),
    lambda: files.create(base + "/b"),
    lambda: files.make_directory(base + "/d"),
    lambda: files.rename(base + "/a", base + "/b"),
    lambda: files.remove(base + "/a"),
):
    try:
        act()
    except ReadOnlyVolume:
        print("read-only")
print(files.open(base + "/a", write=False).size(), files.list(base))
"""


def test_too_many_open_files(tmp_path: Path):
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 32
    why = "too many open files; raise the limit (ulimit -n)"
    assert run(TOO_MANY, str(tmp_path / "a"), str(tmp_path)) == [
        f"open {why}",
        f"create {why}",
        f"sync_directory {why}",
        f"list {why}",
    ]


def test_a_full_volume_gives_back_what_it_reserved(tmp_path: Path):
    assert run_mounted(FULL, tmp_path) == [
        "allocate 300000",
        "allocate 300000",
        "write",
        "600000",
    ]


def test_a_read_only_volume(tmp_path: Path):
    assert run_mounted(READ_ONLY, tmp_path) == ["read-only"] * 6 + ["0 ['a']"]
