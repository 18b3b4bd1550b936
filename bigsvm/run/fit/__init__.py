"""One fit: its plan, its rows, its loop, its outcome."""
