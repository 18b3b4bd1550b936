"""Transformations of rows as they are read: selection, labels, normalization, scaling; recorded in the model."""
