"""Dask collections as a source of rows: partitions that are computed, frames, arrays."""
