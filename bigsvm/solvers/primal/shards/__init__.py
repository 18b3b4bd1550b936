"""Primal solvers with rows on shards: the calling process, and the work of a shard."""
