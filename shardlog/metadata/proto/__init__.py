"""The part of etcd's wire format that Shardlog speaks, and what makes code of it."""
