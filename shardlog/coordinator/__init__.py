"""The driver of the coordinator machine: used by the operator and by the local cluster.

It knows the metadata store and how to call nodes, and nothing of Kubernetes.
"""
