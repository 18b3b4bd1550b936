"""Matrices and collections that lie in groups of Zarr and HDF5 in other ways than AnnData's own."""
