"""Rows on disk: what a block of rows is, and everything that every format shares."""
