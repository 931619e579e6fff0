"""The operator on a real API server and a real etcd, with real nodes; there is no kubelet."""
