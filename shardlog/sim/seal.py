"""The checksums of a real disk; the simulator has no others."""

from __future__ import annotations

from shardlog.checksum import seal, seal_body

__all__ = ["seal", "seal_body"]
