"""Shardlog on a real Kubernetes: what it is made of, and how it is brought up and taken down."""
