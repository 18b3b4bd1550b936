"""What a candidate and its rows are held against, and the figures behind it."""
