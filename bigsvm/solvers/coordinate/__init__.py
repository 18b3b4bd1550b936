"""Coordinate descent in w."""
