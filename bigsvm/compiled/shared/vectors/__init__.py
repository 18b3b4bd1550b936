"""Vectors of numbers as values of compiled code, and moves of whole rows."""
