"""Digests of chunks: what a store said that it holds, and whether it still does."""
