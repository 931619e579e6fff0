"""The metadata store in etcd: the one for Kubernetes.

`store` is what others use, with `settings` to say which etcd; `watching` and `links` are its two
halves, the changes and the connections; `presence` and `health` are for people who look at it.
Needs grpcio, which comes with the extra `operator`.
"""
