"""Pages for the eye: fits of real rows to look at, the numbers of a page, and Dagster's own pages."""
