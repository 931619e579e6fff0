"""A file that is removed while somebody looks at it is nobody's any more."""

from collections.abc import Callable
from pathlib import Path

from shardlog.storage.handles import Handles
from shardlog.storage.real_files import RealFiles
from shardlog.storage.segment import remove


class LookedAt(RealFiles):
    """`look` comes just before a file is gone, as another thread may."""

    def __init__(self) -> None:
        self.look: Callable[[str], None] = lambda path: None

    def remove(self, path: str) -> None:
        self.look(path)
        super().remove(path)


def write(files: RealFiles, path: str, data: bytes) -> None:
    with_data = files.create(path)
    with_data.write(0, [data])
    with_data.close()


def test_the_next_file_of_that_name_is_another(tmp_path: Path):
    files = LookedAt()
    handles = Handles(files)

    def look(path: str) -> None:
        with handles.use(path) as file:
            assert file.read(0, 3) == b"old"

    files.look = look
    path = str(tmp_path / "a.segment")
    write(files, path, b"old")
    remove(handles, path)
    write(files, path, b"new")
    with handles.use(path) as file:
        assert file.read(0, 3) == b"new"
    handles.close()
