"""The filesystem seam over the operating system: the only module of storage that touches a disk.

An `OSError` is translated here and nowhere else; above this module there are only the types of
`failures`.  A call that was cut short is carried on: the kernel may write less than it was given,
takes at most `IOV_MAX` buffers, and reads less than asked for well before the end of a file.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from shardlog.storage.failures import (
    DiskFailed,
    DiskFull,
    MissingFile,
    NotPermitted,
    ReadOnlyVolume,
    StorageFailure,
    TooManyOpenFiles,
    VolumeInUse,
)
from shardlog.storage.files import Buffer

IOV_MAX = os.sysconf("SC_IOV_MAX")
RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
ZEROS = bytes(1 << 20)

LIBC = ctypes.CDLL(None, use_errno=True)


def kernel() -> tuple[int, ...]:
    name = os.uname()
    if name.sysname != "Linux":
        return (0, 0)
    numbers = name.release.split("-")[0].split(".")
    return tuple(int(number) for number in numbers[:2] if number.isdecimal())


# Before this, and elsewhere, syncing a whole volume succeeds whatever became of the writes.
SYNCFS_TELLS = kernel() >= (5, 8)

# A volume that cannot reserve blocks says one of these.
CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.EINVAL)

TYPES: dict[int, type[DiskFull | TooManyOpenFiles | ReadOnlyVolume | MissingFile | NotPermitted]]
TYPES = {
    errno.ENOSPC: DiskFull,
    errno.EDQUOT: DiskFull,
    errno.EMFILE: TooManyOpenFiles,
    errno.ENFILE: TooManyOpenFiles,
    errno.EROFS: ReadOnlyVolume,
    errno.ENOENT: MissingFile,
    errno.EACCES: NotPermitted,
    errno.EPERM: NotPermitted,
}

Names = list[str]


def translated(error: OSError, path: str, operation: str) -> StorageFailure:
    kind = TYPES.get(error.errno or 0)
    return kind(path) if kind else DiskFailed(path, f"{operation}: {error.strerror or error}")


def sync_failed(error: OSError, path: str) -> DiskFailed:
    """Whatever the reason: pages that could not be written count as clean now, room or no room."""
    return DiskFailed(path, f"sync: {error.strerror or error}")


class RealFile:
    """A file descriptor; -1 once it is closed."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        """For whoever wraps it."""
        return self._fd

    def size(self) -> int:
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise translated(error, self._path, "size") from error

    def read(self, position: int, length: int) -> bytes:
        try:
            found = os.pread(self._fd, length, position)
            if len(found) == length or not found:
                return found
            return self._read_on(position, length, found)
        except OSError as error:
            raise translated(error, self._path, "read") from error

    def _read_on(self, position: int, length: int, found: bytes) -> bytes:
        """Fewer bytes than asked for are the end of the file only if nothing follows them."""
        parts = [found]
        done = len(found)
        while done < length:
            part = os.pread(self._fd, length - done, position + done)
            if not part:
                break
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def read_alone(self, position: int, length: int) -> bytes:
        """Whoever reads the same file meanwhile is slower for that time, no more."""
        self._advise(0, 0, os.POSIX_FADV_RANDOM)
        try:
            return self.read(position, length)
        finally:
            self._advise(0, 0, os.POSIX_FADV_NORMAL)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """None as well where the filesystem cannot tell, and for whatever `read` will say."""
        found = bytearray(length)
        try:
            got = os.preadv(self._fd, [found], position, RWF_NOWAIT) if RWF_NOWAIT else 0
        except OSError:
            return None
        return found if got == length else None

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """If the disk is full a part may be written; a retry covers it.

        What `allocate` has reserved is not short of room, so the engine never comes to that.
        """
        try:
            done = os.pwritev(self._fd, buffers[:IOV_MAX], position)
            if done != sum(map(len, buffers)):
                self._write_on(position, buffers, done)
        except OSError as error:
            raise translated(error, self._path, "write") from error

    def _write_on(self, position: int, buffers: Sequence[Buffer], done: int) -> None:
        """What is left behind the first `done` bytes."""
        views = [memoryview(buffer) for buffer in buffers if len(buffer)]
        first = 0
        while True:
            position += done
            while first < len(views) and done >= len(views[first]):
                done -= len(views[first])
                first += 1
            if first == len(views):
                return
            views[first] = views[first][done:]
            done = os.pwritev(self._fd, views[first : first + IOV_MAX], position)
            if not done:
                raise OSError(errno.EIO, "the kernel wrote nothing")

    def allocate(self, size: int) -> None:
        """A reservation that failed half-way is given back: the caller will ask again."""
        if not size:
            return
        before = self.size()
        try:
            self._reserve(before, size)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, before)
            raise translated(error, self._path, "allocate") from error

    def _reserve(self, before: int, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            if error.errno not in CANNOT_RESERVE:
                raise
            while before < size:
                before += os.pwrite(self._fd, ZEROS[: size - before], before)

    def sync(self) -> None:
        """`fdatasync` leaves out the times but not the length."""
        try:
            if self._fd < 0:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            os.fdatasync(self._fd)
        except OSError as error:
            raise sync_failed(error, self._path) from error

    def settle(self) -> None:
        """Dirty pages are written, clean ones dropped: those of a failed sync count as clean."""
        self.sync()
        self._advise(0, 0, os.POSIX_FADV_DONTNEED)

    def fetch(self, position: int, length: int) -> None:
        """Sent to nobody, which takes no copy; a hint is cut to what a disk takes at once."""
        end = position + length
        with suppress(OSError), open(os.devnull, "wb", buffering=0) as nobody:
            while position < end:
                sent = os.sendfile(nobody.fileno(), self._fd, position, end - position)
                if not sent:
                    return
                position += sent

    def drop(self, position: int, length: int) -> None:
        """Only a hint: pages of which a part is meant stay, and so do those not written yet."""
        self._advise(position, length, os.POSIX_FADV_DONTNEED)

    def _advise(self, position: int, length: int, advice: int) -> None:
        with suppress(OSError):
            os.posix_fadvise(self._fd, position, length, advice)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            os.close(fd)
        except OSError as error:
            raise translated(error, self._path, "close") from error


class RealVolume:
    """A whole filesystem.  It stays open from before a write until after its sync.

    An error of the write-back is told to those who had it open when it happened; to others only as
    long as nobody else has asked.
    """

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def sync(self) -> None:
        """Everything that anybody has written there is durable (`syncfs`)."""
        if LIBC.syncfs(self._fd):
            code = ctypes.get_errno()
            raise sync_failed(OSError(code, os.strerror(code)), self._path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Claim:
    """A directory that no other process may use."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFiles:
    """Paths are the operating system's; a volume is wherever they lead."""

    __slots__ = ()

    def open(self, path: str, *, write: bool = True) -> RealFile:
        try:
            fd = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)
        except OSError as error:
            raise translated(error, path, "open") from error
        return RealFile(fd, path)

    def create(self, path: str) -> RealFile:
        """A file that had the name is removed, not emptied: whoever has it open keeps its bytes."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            try:
                fd = os.open(path, flags, 0o644)
            except FileExistsError:
                os.unlink(path)
                fd = os.open(path, flags, 0o644)
        except OSError as error:
            raise translated(error, path, "create") from error
        return RealFile(fd, path)

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise translated(error, path, "make directory") from error

    def list(self, path: str) -> Names:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise translated(error, path, "list") from error

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except OSError as error:
            raise translated(error, old, "rename") from error

    def remove(self, path: str) -> None:
        try:
            try:
                os.unlink(path)
            except IsADirectoryError:
                os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise translated(error, path, "remove") from error

    def sync_directory(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise translated(error, path, "sync directory") from error
        try:
            os.fsync(fd)
        except OSError as error:
            raise sync_failed(error, path) from error
        finally:
            os.close(fd)

    def machine_run(self) -> str:
        return _machine_run()

    def claim(self, path: str) -> Claim:
        """Keep other processes from using a directory, until the claim is closed or we are gone."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise translated(error, path, "claim") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno == errno.EWOULDBLOCK:
                raise VolumeInUse(path) from error
            raise translated(error, path, "claim") from error
        return Claim(fd)

    def open_volume(self, path: str) -> RealVolume | None:
        """The filesystem that `path` stands on; None if it would not tell of failed write-backs."""
        if not SYNCFS_TELLS:
            return None
        try:
            return RealVolume(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
        except OSError as error:
            raise translated(error, path, "open") from error


@cache
def _machine_run() -> str:
    """The kernel's name for it; where there is none, one that no other process will have."""
    try:
        fd = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.urandom(16).hex()
    try:
        return os.read(fd, 100).decode().strip()
    finally:
        os.close(fd)
