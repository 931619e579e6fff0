"""Memory that was freed is taken again, without a detour through the kernel."""

from storage.processes import run

from shardlog_node.memory import PIECE_BYTES_MAX

FAULTS = """
import resource, sys
from shardlog_node.memory import keep_freed

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def pieces():
    held = [bytearray(int(sys.argv[1])) for _ in range(4)]

if sys.argv[2] == "kept" and not keep_freed():
    print("unknown")
    sys.exit()
pieces()
before = faults()
for _ in range(16):
    pieces()
print(faults() - before)
"""
PIECES = 64


def faults(size: int, how: str) -> int | None:
    (told,) = run(FAULTS, str(size), how)
    return None if told == "unknown" else int(told)


def test_pieces_of_a_message_find_their_memory_again():
    found = faults(1 << 20, "kept")
    assert found is None or found < PIECES


def test_a_long_piece_is_given_back():
    found = faults(PIECE_BYTES_MAX + 4096, "kept")
    assert found is None or found > PIECES
