"""The start of a fit: a warm start from an earlier model, rows of dask collections, options that have no effect."""
