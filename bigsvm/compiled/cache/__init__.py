"""Compiled functions on disk: those that came with the installation, and those that this user compiled."""
