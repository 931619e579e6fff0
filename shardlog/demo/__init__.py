"""The demonstration: a real cluster on this machine, faults under load, and a check of it all."""
