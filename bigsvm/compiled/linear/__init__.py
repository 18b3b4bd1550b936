"""Loops of linear solvers and of their proof."""
