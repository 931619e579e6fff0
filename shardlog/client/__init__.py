"""The client: appends records exactly once, reads and tails them, follows failovers by itself."""
