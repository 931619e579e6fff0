"""Every changed, missing or cut byte of a snapshot is found, and said where it is."""

import json
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from client.cluster import Story, story

from shardlog.snapshots.archive import Archive
from shardlog.snapshots.creating import create
from shardlog.snapshots.failures import Damaged, NoSuchSnapshot
from shardlog.snapshots.manifest import Manifest
from shardlog.snapshots.reading import Wanted, read_entries
from shardlog.snapshots.verifying import verify
from snapshots.logs import SEGMENT_BYTES, archive_at, assert_sound, fill, records_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Archive, Manifest]:
    top = tmp_path_factory.mktemp("damage")
    found: list[Manifest] = []
    archive = archive_at(f"file://{top}/snapshots")

    @story(top / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 60)
        found.append(await create(s.client, archive, segment_bytes=SEGMENT_BYTES))

    return top / "snapshots", archive, found[0]


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_anywhere_is_found_by_verify(made: tuple[Path, Archive, Manifest], seed: int):
    top, archive, manifest = made
    rng = random.Random(seed)
    segment = rng.choice(manifest.segments)
    path = top / archive.segment_path(segment.name)
    whole = path.read_bytes()
    near_an_end = rng.choice([0, len(whole) - 400, None])
    at = rng.randrange(len(whole)) if near_an_end is None else near_an_end + rng.randrange(400)
    spoilt = bytearray(whole)
    spoilt[at] ^= 1 << rng.randrange(8)
    path.write_bytes(spoilt)
    try:
        (failure,) = verify(archive, manifest)
        assert isinstance(failure, Damaged)
        assert failure.name == archive.segment_url(segment.name)
        assert failure.offset is not None
        assert segment.base <= failure.offset <= segment.end
        with suppress(Damaged):  # what stands in no entry and no index nobody reads
            seen = records_of(archive, manifest)
            path.write_bytes(whole)
            assert seen == records_of(archive, manifest)
    finally:
        path.write_bytes(whole)
    assert_sound(archive, manifest)


@pytest.mark.parametrize("how", ["missing", "cut", "longer", "empty", "swapped"])
def test_a_segment_that_is_not_what_it_was(made: tuple[Path, Archive, Manifest], how: str):
    top, archive, manifest = made
    segment, other = manifest.segments[1], manifest.segments[2]
    path = top / archive.segment_path(segment.name)
    whole = path.read_bytes()
    changed = {
        "cut": whole[:-1], "longer": whole + b"x", "empty": b"",
        "swapped": (top / archive.segment_path(other.name)).read_bytes(),
    }  # fmt: skip
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(changed[how])
    try:
        (failure,) = verify(archive, manifest)
        assert segment.name in str(failure)
        if how == "longer":  # what is read is as it was
            list(read_entries(archive, segment, Wanted()))
            return
        with pytest.raises(Damaged, match=segment.name):
            list(read_entries(archive, segment, Wanted()))
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("how", ["no JSON", "cut", "a number changed", "version", "of another"])
def test_a_manifest_that_is_not_what_it_was(made: tuple[Path, Archive, Manifest], how: str):
    top, archive, manifest = made
    path = top / archive.manifest_name(manifest.id)
    whole = path.read_bytes()
    document = json.loads(whole)
    if how == "a number changed":
        document["end"] -= 1
    elif how == "version":
        document["version"] = 3
    elif how == "of another":
        document["id"] = "another"
    changed = {"no JSON": b"\x00\xff", "cut": whole[: len(whole) // 2]}
    path.write_bytes(changed.get(how) or json.dumps(document).encode())
    try:
        with pytest.raises(Damaged, match=manifest.id):
            archive.manifest(manifest.id)
    finally:
        path.write_bytes(whole)


def test_S24_a_manifest_of_anything_is_damaged(made: tuple[Path, Archive, Manifest]):
    top, archive, manifest = made
    path = top / archive.manifest_name(manifest.id)
    whole = path.read_bytes()
    late = replace(manifest, created_ms=10**18).to_bytes()
    nested = b"[" * 200_000
    inside = b'{"format": ' + nested
    try:
        for odd in (late, nested, inside, b"[]", b"7", b"null", b'"' + b"x" * 100_000 + b'"'):
            path.write_bytes(odd)
            with pytest.raises(Damaged, match=manifest.id) as failure:
                archive.manifest(manifest.id)
            assert "\n" not in str(failure.value)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["nothing", "../../etc/passwd", "", "a/b"])
def test_a_snapshot_that_is_not_there(made: tuple[Path, Archive, Manifest], name: str):
    _, archive, _ = made
    with pytest.raises(NoSuchSnapshot):
        archive.manifest(name)


def test_only_what_is_wanted_is_read(made: tuple[Path, Archive, Manifest]):
    _, archive, manifest = made
    everything = records_of(archive, manifest)
    some = [each for each in everything if 300 <= each.offset < 500]
    found = records_of(archive, manifest, Wanted(300, 500))
    assert [each for each in found if 300 <= each.offset < 500] == some
    assert records_of(archive, manifest, Wanted(start=manifest.end)) == []
