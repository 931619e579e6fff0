"""Named sets of options: each makes one class of faults frequent.

`default` is what `Options.of` draws from the seed.  Every other profile changes that by numbers
that it draws from a generator of its own, named after the profile and the seed, so that adding a
profile changes no run of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from shardlog.protocol.quorum import QuorumPolicy
from shardlog.sim.options import DEFAULT_PROFILE, Options

Profile = Callable[[Options], Options]


def _restores(options: Options) -> Options:
    """The metadata store is set back, mostly while shards change and elect."""
    random = Random(f"restores {options.seed}")
    alone = options.members == 1
    return replace(
        options,
        members=3 if alone else options.members,
        quorum=QuorumPolicy() if alone else options.quorum,
        restore_every_ms=random.choice((700, 1500, 3000)),
        destroy_every_ms=0,
        calm_ms=0,
        delete=False,  # what the record has forgotten nobody destroys
    )


def _sessions(options: Options) -> Options:
    """Clients use each other's sessions."""
    random = Random(f"sessions {options.seed}")
    return replace(options, steal=random.choice((0.05, 0.2, 0.4)))


PROFILES: dict[str, Profile] = {
    DEFAULT_PROFILE: lambda options: options,
    "restores": _restores,
    "sessions": _sessions,
}


def options_of(seed: int, profile: str = DEFAULT_PROFILE, engine: bool = False) -> Options:
    """The options of `seed` under `profile`, on the storage engine or on a model of disks.

    Raises KeyError if there is no such profile.
    """
    options = replace(PROFILES[profile](Options.of(seed)), profile=profile)
    return options.on_engine() if engine else options
