"""Kernel values of rows: in tiles, summed into scores or written down."""
