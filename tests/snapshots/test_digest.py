"""Segments are called by their BLAKE3; those of older snapshots by their SHA-256, and stay so."""

import hashlib
import json
from pathlib import Path

from client.cluster import Story, story

from shardlog.snapshots import manifest as manifests
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.creating import Progress, create
from shardlog.snapshots.digest import digest_of, is_digest_of
from shardlog.snapshots.manifest import Manifest
from shardlog.snapshots.verifying import verify
from snapshots.logs import SEGMENT_BYTES, archive_at, assert_sound, fill, log_of, records_of


def test_the_digest_is_that_of_other_programs():
    """The first is in the paper on BLAKE3, as what nothing at all gives."""
    assert digest_of(b"") == (
        "blake3-af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    )
    assert is_digest_of(digest_of(b"abc"), b"abc")
    assert not is_digest_of(digest_of(b"abc"), b"abd")
    assert is_digest_of(hashlib.sha256(b"abc").hexdigest(), b"abc")
    assert not is_digest_of(hashlib.sha256(b"abc").hexdigest(), b"abd")


def as_of_version_1(top: Path, archive: Archive, manifest: Manifest) -> Manifest:
    """The same snapshot as it was written then."""
    path = top / archive.manifest_name(manifest.id)
    document = json.loads(path.read_bytes())
    del document["checksum"]
    document["version"] = 1
    for segment in document["segments"]:
        file = top / archive.segment_path(segment["name"])
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        segment["name"] = f"{segment['first']:020d}-{segment['end']:020d}-{digest}.segment"
        segment["sha256"] = digest
        del segment["blake3"]
        file.rename(file.with_name(segment["name"]))
    path.write_text(json.dumps({**document, "checksum": manifests._checksum(document)}))
    return archive.manifest(manifest.id)


def test_snapshots_of_version_1_are_read_verified_and_shared(tmp_path: Path):
    archive = archive_at(f"file://{tmp_path}/snapshots")

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 40)
        made = await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        old = as_of_version_1(tmp_path / "snapshots", archive, made)
        assert_sound(archive, old)
        assert records_of(archive, old) == await log_of(s.client)

        progress = Progress()
        await fill(s.client, 20)
        new = await create(s.client, archive, segment_bytes=SEGMENT_BYTES, progress=progress)
        assert_sound(archive, new)
        assert records_of(archive, new) == await log_of(s.client)
        assert new.segments[: len(old.segments) - 1] == old.segments[:-1]
        assert progress.reused_segments >= len(old.segments) - 1 > 0
        assert new.segments[-1].digest.startswith("blake3-")

        file = tmp_path / "snapshots" / archive.segment_path(old.segments[0].name)
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert len(list(verify(archive, old))) == 1
