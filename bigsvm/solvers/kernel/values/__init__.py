"""Kernel values: of rows that stream, that are cached, that are kept."""
