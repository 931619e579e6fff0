"""The Shardlog protocol as pure state machines.

Nothing in this package reads a clock, draws a random number, logs, or touches a disk or a
network.  A machine takes one event and returns the ordered list of effects that a driver has to
perform; time, randomness and checksums arrive as values.  That is why the same code runs in
production, under the random simulator and under bounded exhaustive exploration.
"""
