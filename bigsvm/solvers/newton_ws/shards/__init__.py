"""`newton-ws` with rows on shards."""
