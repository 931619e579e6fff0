"""The operator: Shards of the Kubernetes API, brought about by the coordinator."""
