"""Replicas written by every format version there was; each opens for ever, and says the same."""

import json
import shutil
from pathlib import Path

import pytest

from shardlog.protocol.effects import Sync
from shardlog.protocol.entry import Kind
from shardlog.storage.handles import Handles
from shardlog.storage.layout import FORMAT_VERSION
from shardlog.storage.real_files import RealFiles
from shardlog.storage.store import Store
from storage.damage import contents
from storage.driver import NODE, SHARD, SMALL
from storage.golden.make import replica, told
from storage.states import chain, write

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.glob("v*"))


@pytest.fixture(params=VERSIONS)
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = tmp_path / "orders"
    shutil.copytree(GOLDEN / request.param, made)
    return made


def test_there_is_one_for_the_current_version() -> None:
    assert VERSIONS[-1] == f"v{FORMAT_VERSION}"


def test_a_golden_replica_opens_and_says_what_it_said(copy: Path) -> None:
    expected = json.loads((copy / "expected.json").read_text())
    for _ in range(2):
        handles = Handles(RealFiles())
        store, recovered = Store.open(handles, str(copy), SHARD, NODE, SMALL)
        assert recovered is not None
        assert json.loads(json.dumps(told(store, recovered))) == expected
        handles.close()


def test_a_golden_replica_goes_on(copy: Path) -> None:
    handles = Handles(RealFiles())
    store, recovered = Store.open(handles, str(copy), SHARD, NODE, SMALL)
    assert recovered is not None
    last = recovered.headers[-1]
    assert last.kind is Kind.DATA
    more = chain(3, last.end, last.checksum, epoch=2)
    store.submit(write(more, recovered.superblock.commit))
    store.submit(Sync(1))
    reported: list[int] = []
    while (round_ := store.take()) is not None:
        round_.write()
        round_.sync()
        reported += store.finish(round_)
    handles.close()
    assert reported == [1]
    handles = Handles(RealFiles())
    store, recovered = Store.open(handles, str(copy), SHARD, NODE, SMALL)
    assert recovered is not None
    assert [store.read(header) for header in recovered.headers[-3:]] == more
    handles.close()


def test_making_one_is_deterministic() -> None:
    assert contents(replica()) == contents(replica())
