"""Servers on the loopback that objects are read from, and what they do wrong."""
