"""The node process: hosts replicas, performs what they ask for, talks to the others."""
