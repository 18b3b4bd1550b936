"""Dual coordinate descent on shards: the calling process, the messages of a round, and the work of a shard in it."""
