"""What the processes of a cluster share: how they are told their settings, and how they log."""
