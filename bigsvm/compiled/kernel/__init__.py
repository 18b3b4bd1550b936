"""Loops over values of Mercer kernels."""
