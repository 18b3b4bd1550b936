"""Solvers by name, and what all of them share."""
