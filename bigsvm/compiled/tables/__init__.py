"""Loops that take in rows as readers of tables give them."""
