"""Values that are made for every append: dataclasses that nobody changes.

A type checker takes them for frozen, so an assignment to an attribute does not pass.  While the
program runs nothing is checked: what a frozen dataclass does for that takes several times as long
as all the rest of making one, and every append needs half a dozen of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Compared and hashed by its attributes, which are all it has."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
