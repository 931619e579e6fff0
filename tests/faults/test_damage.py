"""Files of live nodes are damaged, under load: the short form of `make soak`."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from faults import damage
from faults.live_files import live_files
from faults.nursery import Nursery
from faults.ordeal import SEED, TIMES, judge, tell
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
    notices(soak, Random(seed))


def notices(soak: Soak, random: Random) -> None:
    """The judge itself: one more byte, after the end, and it must tell."""
    history, volume = soak.ordeal.load.history, soak.cluster.volume("node-2")
    with live_files(volume) as files:
        assert files is not None
        blows = damage.header(files, random)
    blows[0].strike()
    with pytest.raises(AssertionError, match="repairable from another replica"):
        judge(soak.cluster, list(soak.cluster.nodes), history)
