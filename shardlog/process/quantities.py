"""Quantities as people write them in a Shard and on the command line: 168h, 1h30m, 10GiB."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")
_BYTES = re.compile(r"([0-9]{1,18}) ?(?:([KMGT])(i?))?B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class BadQuantity(ValueError):  # noqa: N818 - named after what it is
    """The message is one line for a person."""


def duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        what = "hours, minutes and seconds in whole numbers, as 168h or 1h30m"
        raise BadQuantity(f"{text!r:.80} is no time: {what}")
    hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000


def duration_text(time_ms: int) -> str:
    """The other way; what is less than a second is left out."""
    hours, rest = divmod(time_ms // 1000, 3600)
    parts = ((hours, "h"), (rest // 60, "m"), (rest % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def bytes_of(text: str) -> int:
    found = _BYTES.fullmatch(text)
    if found is None:
        raise BadQuantity(f"{text!r:.80} is no number of bytes: as 1048576 or 10GiB")
    number, unit, binary = found.groups()
    base = 1024 if binary else 1000
    return int(number) * int(base ** _POWERS[(unit or "").upper()])
