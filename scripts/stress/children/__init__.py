"""Processes of a trial."""
