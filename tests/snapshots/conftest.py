"""Destinations for snapshots: a directory, and a real S3 endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshots.s3 import BUCKET, s3_endpoint


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3_endpoint(tmp_path_factory.mktemp("s3")) as environment:
        yield environment


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.needs("go"))])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL that nobody else uses."""
    if request.param == "file":
        return f"file://{tmp_path}/snapshots"
    for name, value in request.getfixturevalue("s3").items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"
