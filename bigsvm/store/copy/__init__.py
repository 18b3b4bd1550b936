"""The working copy of the rows on the scratch disk: uncompressed, in an order that suits a fit."""
