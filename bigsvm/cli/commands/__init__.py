"""One small file for each command."""
