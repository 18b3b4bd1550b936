"""Estimates for workers of a cluster, from the plan: their memory, and the time of a pass."""
