"""Layouts of matrices in groups of Zarr and HDF5 other than AnnData's own."""
