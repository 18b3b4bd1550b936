"""Who listens to the events of a run: lines, a progress bar, a JSON-lines file."""
