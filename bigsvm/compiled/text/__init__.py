"""Loops that parse and write text."""
