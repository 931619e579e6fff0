"""What can be wrong with a cluster on one machine, by type; each message is one line."""

from __future__ import annotations


class LocalFailure(Exception):  # noqa: N818 - named after what happened
    """Base of all."""


class NoCluster(LocalFailure):
    def __init__(self, directory: str) -> None:
        super().__init__(f"no cluster in {directory}: `shardlog local up` makes one")


class UnusableDirectory(LocalFailure):
    """Not a directory, not permitted, full."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be made or used: {why}")


class BadClusterFile(LocalFailure):
    """`cluster.json` is not as it was written."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")


class PortTaken(LocalFailure):
    def __init__(self, name: str, address: str) -> None:
        super().__init__(
            f"{address}, where {name} listens, is taken by another program: stop that, or choose "
            "other ports by `shardlog local up --new-ports`"
        )
        self.name = name


class NotInstalled(LocalFailure):
    def __init__(self, module: str) -> None:
        super().__init__(
            f"nodes cannot be run, {module} is not installed: pip install 'shardlog[node]'"
        )


class CannotChange(LocalFailure):
    """What was asked for does not fit the cluster that is there."""


class NoSuchProcess(LocalFailure):
    def __init__(self, name: str, names: list[str]) -> None:
        super().__init__(f"there is no {name} here, only {', '.join(names)}")


class NotRunning(LocalFailure):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not running")


class NotReady(LocalFailure):
    """It was started, and does not serve."""


class AnotherIsBusy(LocalFailure):
    """Another `up` or `down` works on the same cluster, and did not come to an end."""
