"""Every byte of a small replica, damaged: the answer is right, or marked as bad, never wrong.

Everything is there twice or more (heads, slots, superblock copies) or is summed on its own
(entries), so damage to one byte never keeps a replica from starting.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from shardlog.storage.layout import SLOTS_START, Head, unpack_head
from shardlog.storage.superblock import STRIDE_BYTES
from storage.damage import SPECIMEN

BLANKS_EACH = 61
"""One of so many bytes is tried where nothing was ever written."""


def head_of(name: str) -> Head:
    head = unpack_head(SPECIMEN.contents[name][:2048])
    assert head is not None
    return head


def positions(name: str) -> Iterator[int]:
    """Every byte that was written, slots whole; some of the others."""
    data = SPECIMEN.contents[name]
    slots = range(0)
    if name != "superblock":
        slots = range(SLOTS_START, head_of(name).body_start)
    for position, byte in enumerate(data):
        if byte or position in slots or position % BLANKS_EACH == 0:
            yield position


@pytest.mark.parametrize("name", SPECIMEN.contents)
def test_every_byte_flipped_is_right_or_marked(name: str) -> None:
    random = Random(name)
    outcomes: Counter[str] = Counter()
    for number, position in enumerate(positions(name)):
        old = SPECIMEN.contents[name][position]
        values = {old ^ (1 << random.randrange(8))}
        if number % 9 == 0:
            values |= {0, 0xFF}
        for value in values - {old}:
            data = bytearray(SPECIMEN.contents[name])
            data[position] = value
            files = SPECIMEN.volume({**SPECIMEN.contents, name: bytes(data)})
            try:
                outcomes[SPECIMEN.judge(files, name)] += 1
            except Exception as error:
                raise AssertionError(f"{name} at byte {position}: {old} → {value}") from error
    assert set(outcomes) <= {"right", "marked"}
    assert outcomes["right"] > 100
    assert (outcomes["marked"] > 0) == (name != "superblock")


@pytest.mark.parametrize("name", SPECIMEN.contents)
def test_M7_what_was_found_damaged_is_found_again(name: str) -> None:
    """Mending at one start changes nothing for the next."""
    for position in [*positions(name)][::41]:
        data = bytearray(SPECIMEN.contents[name])
        data[position] ^= 0x10
        files = SPECIMEN.volume({**SPECIMEN.contents, name: bytes(data)})
        first = SPECIMEN.opened(files)[1]
        for _ in range(2):
            files.crash("none")
            assert SPECIMEN.opened(files)[1] == first


@pytest.mark.parametrize("lost", [b"\0", b"\xff"])
def test_a_superblock_file_of_noise_names_its_position(lost: bytes) -> None:
    data = lost * len(SPECIMEN.contents["superblock"])
    files = SPECIMEN.volume({**SPECIMEN.contents, "superblock": data})
    assert SPECIMEN.judge(files, "superblock") == "refused"


def test_T4_one_bad_copy_is_mended_and_the_next_may_go() -> None:
    """Copies are written again at the start, so damage does not add up over starts."""
    files = SPECIMEN.volume(SPECIMEN.contents)
    for place in (0, 1, 2, 3, 1, 3):
        files.rot("volume/orders/superblock", place * STRIDE_BYTES + 20, 8)
        assert SPECIMEN.judge(files, "superblock") == "right"
        files.crash("none")
