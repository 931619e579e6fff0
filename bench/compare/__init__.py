"""Shardlog beside the systems a user would pick instead: same machine, same work, in one run.

    python -m bench.compare [DIR] [--quick] [--only NAME,...] [--json FILE] [--page]

Each system is started from a pinned version as three processes on loopback (`kafka.py`, `nats.py`,
`etcd.py`, `shardlog.py`; what they have in common is `system.py`), is given the same work one
pattern after the other (`work.py`), and is gone before the next one begins.  The load comes from a
process of its own: the Go program in `load/` for the others, `shardlog_load.py` for Shardlog, with
the same arguments and the same answers.

What counts are ratios within one run.  The yardstick of `bench/limit.py` is taken before and after:
if it has moved, so has the machine, and the run says so.  A system that cannot be had or does not
start is told in its row, and the others go on.
"""
