"""docs/snapshot-format.md against the code."""

import json
from pathlib import Path

import pytest
from client.cluster import Story, story
from transport.documents import DOCS, laid_out, table, told

from shardlog.snapshots.creating import create
from shardlog.snapshots.manifest import SESSIONS_MAX
from shardlog.snapshots.segment_bytes import BLOCK, FOOT, HEAD, SESSION, SPAN
from snapshots.logs import archive_at, fill

DOCUMENT = (DOCS / "snapshot-format.md").read_text()


@pytest.mark.parametrize(
    ("heading", "form"),
    [("Head", HEAD), ("Block", BLOCK), ("Span", SPAN), ("Writer", SESSION), ("Foot", FOOT)],
)
def test_fixed_parts(heading: str, form):
    assert told(DOCUMENT, heading) == laid_out(form.format)


def test_numbers():
    assert f"the {SESSIONS_MAX} used last" in DOCUMENT
    assert f"the last {FOOT.size} bytes" in DOCUMENT


def fields(heading: str) -> list[str]:
    return [row["field"] for row in table(DOCUMENT, heading)]


def test_the_manifest(tmp_path: Path):
    archive = archive_at(f"file://{tmp_path}/snapshots")

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 3)
        made = await create(s.client, archive)
        document = json.loads(archive.destination.get(archive.manifest_name(made.id)))
        assert list(document) == fields("Manifest")
        assert list(document["commit"]) == fields("Commit")
        assert list(document["segments"][0]) == fields("Segment in a manifest")
