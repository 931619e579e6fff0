from collections.abc import Iterator

import pytest

from faults.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery.open() as nursery:
        yield nursery
