"""Models: what was fitted, how it is written, read, applied and promoted."""
