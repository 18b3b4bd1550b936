"""State of a fit for each row, in memory or on disk: row vectors, row caches, and saved state."""
