"""A running fit, observed from another process: its state as a table and as metrics."""
