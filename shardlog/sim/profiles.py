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
    """Clients use each other's sessions, nodes would keep others, entries are lost with headers."""
    random = Random(f"sessions {options.seed}")
    steal = random.choice((0.0, 0.05, 0.2, 0.4))
    destroy_every_ms = random.choice((0, 700, 2000))
    return replace(options, steal=steal, mixed=True, destroy_every_ms=destroy_every_ms)


def _relaxed(options: Options) -> Options:
    """Entries count before they are synced, and the power goes, here or everywhere."""
    random = Random(f"relaxed {options.seed}")
    return replace(
        options,
        relaxed=True,
        power_every_ms=random.choice((500, 1500, 4000)),
        destroy_every_ms=0,
        gives_up=random.choice((0.3, 1.0)),
    )


def _identity(options: Options) -> Options:
    """Volumes that go and come back, lost disks, and refusals that come late."""
    random = Random(f"identity {options.seed}")
    return replace(
        options,
        members=max(options.members, 3),
        quorum=QuorumPolicy(),
        away_every_ms=random.choice((0, 1500, 4000)),
        wipe_every_ms=random.choice((800, 2500)),
        echo=random.choice((0.1, 0.5)),
    )


def _retention(options: Options) -> Options:
    """So little is kept that a new node falls behind it; standbys are cancelled."""
    random = Random(f"retention {options.seed}")
    return replace(
        options,
        retained=random.choice((3, 10, 40)),
        feed_bytes=random.choice((0, 200, 1000)),
        think_ms=random.choice((5, 20)),
        command_every_ms=random.choice((200, 600)),
        destroy_every_ms=0,
    )


def _losses(options: Options) -> Options:
    """Entries and tails that nobody can read are given up, sometimes though somebody has them."""
    random = Random(f"losses {options.seed}")
    return replace(
        options,
        relaxed=random.random() < 0.6,
        power_every_ms=random.choice((500, 1500)),
        destroy_every_ms=random.choice((500, 1500)),
        scrub_every_ms=random.choice((20, 100)),
        gives_up=random.choice((0.3, 1.0)),
        hurry=random.choice((0.0, 0.5)),
    )


PROFILES: dict[str, Profile] = {
    DEFAULT_PROFILE: lambda options: options,
    "restores": _restores,
    "sessions": _sessions,
    "relaxed": _relaxed,
    "losses": _losses,
    "identity": _identity,
    "retention": _retention,
}


def options_of(seed: int, profile: str = DEFAULT_PROFILE, engine: bool = False) -> Options:
    """The options of `seed` under `profile`, on the storage engine or on a model of disks.

    Raises KeyError if there is no such profile.
    """
    options = replace(PROFILES[profile](Options.of(seed)), profile=profile)
    return options.on_engine() if engine else options
