"""Dask collections as sources of rows: frames, arrays and Delayed blocks, computed partition by partition."""
