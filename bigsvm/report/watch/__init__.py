"""A running fit, seen from another process: its state now, as a table and as metrics."""
