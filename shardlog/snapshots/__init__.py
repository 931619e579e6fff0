"""Snapshots of shards: immutable, described by themselves, at a URL.

`docs/snapshots.md` says how they are used, `docs/snapshot-format.md` what they are made of.
"""
