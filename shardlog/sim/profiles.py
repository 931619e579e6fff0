"""Named sets of options: each makes one class of faults frequent.

`default` is what `Options.of` draws from the seed.  Every other profile changes that by numbers
that it draws from a generator of its own, named after the profile and the seed, so that adding a
profile changes no run of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shardlog.sim.options import DEFAULT_PROFILE, Options

Profile = Callable[[Options], Options]

PROFILES: dict[str, Profile] = {
    DEFAULT_PROFILE: lambda options: options,
}


def options_of(seed: int, profile: str = DEFAULT_PROFILE, engine: bool = False) -> Options:
    """The options of `seed` under `profile`, on the storage engine or on a model of disks.

    Raises KeyError if there is no such profile.
    """
    options = replace(PROFILES[profile](Options.of(seed)), profile=profile)
    return options.on_engine() if engine else options
