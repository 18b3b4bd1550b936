"""The working copy: rows in an order that suits a fit, on the scratch disk."""
