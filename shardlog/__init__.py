"""A replicated, sharded log: the shared library."""

__version__ = "0.1.0"
