"""Rows on several shards: what a round does, where it runs, and what is lost with a worker."""
