"""The epsilon-insensitive loss by an interior-point method, on rows in memory and on rows that stream."""
