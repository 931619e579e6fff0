"""What the exit status of `shardlog` means.

Scripts and CI branch on these numbers, so a number is never given a new meaning. 1 is left out on
purpose: it is what a shell or an interpreter that never reached Shardlog tends to return.
"""

from typing import Final

OK: Final = 0
USAGE: Final = 2  # the command line was wrong; nothing was done
CRASH: Final = 3  # an exception nobody expected, in the command or in the code it simulates
SAFETY: Final = 4  # a checker saw a safety invariant broken
LIVENESS: Final = 5  # faults ended and the shard still made no progress
SURVIVED: Final = 6  # a mutant survived: the checkers missed a bug that was put in on purpose
DAMAGED: Final = 7  # files of a replica are not as they were written
UNAVAILABLE: Final = 8  # the cluster gave no answer, or not in time; it may be done, or not
REFUSED: Final = 9  # the cluster said no: not found, exists already, or not possible now
INPUT: Final = 10  # a record that was given cannot be appended; those before it are
INTERRUPTED: Final = 130  # Ctrl-C, as a shell reports SIGINT
