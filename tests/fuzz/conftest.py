from collections.abc import Iterator

import pytest
from faults.nursery import Nursery

from fuzz.attacked import Attacked, attacked


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with Nursery.open() as nursery, attacked(tmp_path_factory.mktemp("fuzz"), nursery) as node:
        yield node


@pytest.fixture(autouse=True)
def _as_before(node: Attacked) -> Iterator[None]:
    yield
    node.is_as_before()
