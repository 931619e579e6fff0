"""One etcd for the run, an installation for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd.cluster import EtcdCluster

from e2e.api_server import ApiServer
from e2e.operated.installation import Installation


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def it(api: ApiServer, namespace: str, etcd: EtcdCluster, tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(api, namespace, etcd.endpoints, tmp_path)
    try:
        yield installation
    finally:
        installation.stop()
