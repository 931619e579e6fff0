"""One replica's disk: segments, superblock and recovery, behind one filesystem seam.

Everything here but `real_files` runs unchanged over the simulator's faulty files.  Nothing here
knows of asyncio: `store` queues what a replica wants written and hands it out in rounds, and
whoever performs the rounds (a `Volume` in a process, the scheduler in a simulation) decides when.
"""
