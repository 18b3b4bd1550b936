"""Rows turned into columns, on the scratch disk."""
