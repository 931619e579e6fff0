"""A superblock whose lengths are anybody's."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest

from shardlog.storage.failures import Damaged
from shardlog.storage.layout import FORMAT_VERSION
from shardlog.storage.real_files import RealFiles
from shardlog.storage.superblock import COPIES, COPY_BYTES_MAX, MAGIC, NAME, SuperblockFile


def test_S24_a_huge_length_costs_no_memory(tmp_path: Path):
    """The file is sparse: it says that it has four copies of a GiB each."""
    stride = 2 << 30
    path = tmp_path / NAME
    with path.open("wb") as file:
        file.truncate(COPIES * stride)
        for place in range(COPIES):
            file.seek(place * stride)
            file.write(struct.pack("<8sIIQQ", MAGIC, 0, FORMAT_VERSION, 1, 1 << 30))
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match="no copy of the superblock can be read"):
            SuperblockFile(RealFiles(), str(tmp_path)).load()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < COPY_BYTES_MAX
