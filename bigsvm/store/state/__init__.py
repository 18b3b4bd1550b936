"""What a fit keeps for each row, in memory or on disk."""
