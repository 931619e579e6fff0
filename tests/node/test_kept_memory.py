"""A node keeps the memory of large messages: another one costs no page faults."""

import subprocess
import sys

PROGRAM = """
import resource, sys
from shardlog.process.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if len(sys.argv) > 1:
    assert keep_freed_memory()
for _ in range(20):
    message, copy = bytearray(1 << 20), bytes(1 << 20)
    del message, copy
before = faults()
for _ in range(20):
    message, copy = bytearray(1 << 20), bytes(1 << 20)
    del message, copy
print(faults() - before)
"""


def page_faults(*arguments: str) -> int:
    done = subprocess.run(
        (sys.executable, "-c", PROGRAM, *arguments), capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_large_messages_are_made_where_others_were():
    pages_of_one = (1 << 20) // 4096
    assert page_faults("keep") < pages_of_one
    assert page_faults() > 2 * pages_of_one, "what is kept by itself needs no telling"
