"""Newton steps on the rows that matter."""
