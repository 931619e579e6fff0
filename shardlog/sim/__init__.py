"""The deterministic simulator: a whole shard in one process, and an adversary.

One seed decides everything: the size of the cluster, the speed of its links and disks, and each
fault at each moment.  The replicas and coordinators are the very machines that run in production;
only their drivers, the network, the disks, the metadata store and time are models.  Checkers sit
outside of them as observers.  A seed that fails is a bug report: it replays byte for byte.
"""
