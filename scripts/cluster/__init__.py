"""A dask cluster on one machine whose workers have a stated part of a core each, and what passes on it take."""
