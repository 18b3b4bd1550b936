"""Fits, proofs and predictions from one end to the other; `api` and `path` are the doors."""
