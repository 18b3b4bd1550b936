"""Formats of stores: one file for each, and `open_store`, which chooses among them."""
