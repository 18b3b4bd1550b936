"""Solvers that see the rows through a kernel: the dual with a free bias."""
