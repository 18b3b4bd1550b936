"""Vectors of numbers as values of compiled code, moves of whole rows, and sums with twice the digits."""
