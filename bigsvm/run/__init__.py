"""Fits, proofs and predictions from start to end; the public functions are in `api` and `path`."""
