"""Files of live nodes are damaged, under load: the short form of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.nursery import Nursery
from faults.ordeal import SEED, TIMES, tell
from faults.soak import Soak, table

FAULTS = int(45 * TIMES)


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_T3_nothing_is_lost_over_damage_on_all_disks(tmp_path: Path, nursery: Nursery, seed: int):
    soak = Soak(tmp_path / "cluster", seed, nursery)
    try:
        soak.run(lambda torment: torment.total >= FAULTS)
    except BaseException:
        print(f"FAULTS_SEED={seed}; everything is in {soak.cluster.layout.directory}")
        raise
    tell(soak.ordeal)
    print(table(soak))
    assert soak.torment.total >= FAULTS
