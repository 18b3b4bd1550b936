"""Kernel solvers as their papers have them."""
