"""Loops that the store and more than one family of solvers use."""
