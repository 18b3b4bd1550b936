"""Loops that read rows from the memory of Arrow tables."""
