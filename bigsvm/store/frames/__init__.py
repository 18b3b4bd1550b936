"""Frames of pandas and polars as arrays of numbers."""
