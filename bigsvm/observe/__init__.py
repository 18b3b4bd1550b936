"""Consumers of the events of a run: plain lines, a progress bar, a JSON-lines file."""
