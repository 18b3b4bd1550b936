"""Stores that are opened: one file a format, and who chooses among them."""
